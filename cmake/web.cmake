# The browser build: libraries that are headers alone, the exception runtime that Debian's libc++abi
# for WebAssembly lacks, and modules that a page loads.

enable_language(C)

# Only the headers of these two, so that no other header of the host is found.
set(TENSORGRAD_HOST_HEADERS ${PROJECT_BINARY_DIR}/host-headers)
file(MAKE_DIRECTORY ${TENSORGRAD_HOST_HEADERS})
foreach(header IN ITEMS fmt/format.h nlohmann/json.hpp)
  cmake_path(GET header PARENT_PATH folder)
  find_path(TENSORGRAD_HOST_${folder} ${header} PATHS /usr/include NO_DEFAULT_PATH
            NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  mark_as_advanced(TENSORGRAD_HOST_${folder})
  file(CREATE_LINK ${TENSORGRAD_HOST_${folder}}/${folder} ${TENSORGRAD_HOST_HEADERS}/${folder}
       SYMBOLIC)
endforeach()
foreach(target IN ITEMS fmt::fmt nlohmann_json::nlohmann_json)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${TENSORGRAD_HOST_HEADERS})
endforeach()
# Without locales, which bring iostreams, and without the widest numbers, which nothing writes.
target_compile_definitions(fmt::fmt INTERFACE FMT_USE_FULL_CACHE_DRAGONBOX=0 FMT_USE_LONG_DOUBLE=0
                           FMT_USE_INT128=0 "FMT_STATIC_THOUSANDS_SEPARATOR=','")
add_library(tensorgrad_fmt OBJECT cmake/wasm/fmt.cpp)
target_link_libraries(tensorgrad_fmt PRIVATE fmt::fmt)
target_compile_options(tensorgrad_fmt PRIVATE -Oz -w)

# libc++abi's and libunwind's sources for WebAssembly exceptions, as Debian's `emscripten` has them.
set(TENSORGRAD_EMSCRIPTEN /usr/share/emscripten CACHE PATH
    "Contents of Debian's emscripten package (only its library sources are used)")
set(abi ${TENSORGRAD_EMSCRIPTEN}/system/lib/libcxxabi)
set(unwind ${TENSORGRAD_EMSCRIPTEN}/system/lib/libunwind)
if(NOT EXISTS ${abi}/src/cxa_exception.cpp)
  message(FATAL_ERROR "The browser build needs the library sources of Debian's package emscripten; "
                      "scripts/web fetches them, or set TENSORGRAD_EMSCRIPTEN")
endif()
add_library(tensorgrad_exceptions OBJECT
  ${abi}/src/cxa_exception.cpp ${abi}/src/cxa_personality.cpp ${unwind}/src/Unwind-wasm.c
  cmake/wasm/support.cpp cmake/wasm/tag.c)
target_include_directories(tensorgrad_exceptions PRIVATE
  cmake/wasm ${abi}/include ${abi}/src ${unwind}/include ${unwind}/src)
target_compile_options(tensorgrad_exceptions PRIVATE -w)
target_compile_definitions(tensorgrad_exceptions PRIVATE
  NDEBUG __USING_WASM_EXCEPTIONS__ _LIBCXXABI_HAS_NO_THREADS _LIBCXXABI_BUILDING_LIBRARY
  _LIBCPP_BUILDING_LIBRARY _LIBCPP_INLINE_VISIBILITY=)

# The source asks who compiles it; only the branch that needs nothing of the system is wanted.
set_source_files_properties(${unwind}/src/Unwind-wasm.c PROPERTIES COMPILE_DEFINITIONS
  "__EMSCRIPTEN__;_LIBUNWIND_DISABLE_VISIBILITY_ANNOTATIONS")

# tensorgrad_add_web_module(NAME SOURCES...): a WebAssembly module with the models that the sources
# register (tensorgrad/web.h), for `loadModule` of @tensorgrad/web.

# Debian's binaryen: a tenth smaller. (The compiler would run it for speed.)
find_program(TENSORGRAD_WASM_OPT wasm-opt)
mark_as_advanced(TENSORGRAD_WASM_OPT)

set(TENSORGRAD_WEB_ROOT ${PROJECT_SOURCE_DIR})
file(GLOB TENSORGRAD_WEB_EXPORTS CONFIGURE_DEPENDS src/runtime/web/wasm/*.cpp)
function(tensorgrad_add_web_module name)
  add_executable(${name} ${ARGN} ${TENSORGRAD_WEB_EXPORTS} 
                 $<TARGET_OBJECTS:tensorgrad_exceptions> $<TARGET_OBJECTS:tensorgrad_fmt>)
  target_link_libraries(${name} PRIVATE tensorgrad::tensorgrad fmt::fmt
                        nlohmann_json::nlohmann_json)
  target_include_directories(${name} PRIVATE ${TENSORGRAD_WEB_ROOT}/src)
  set_target_properties(${name} PROPERTIES SUFFIX .wasm)
  target_compile_options(${name} PRIVATE -Oz)
  target_link_options(${name} PRIVATE -mexec-model=reactor --no-wasm-opt -Wl,--gc-sections -Wl,--strip-all
                      -Wl,-z,stack-size=1048576
                      # The compiler does not hand these on; without them nothing is caught.
                      -Wl,-mllvm,-wasm-enable-eh -Wl,-mllvm,-exception-model=wasm
                      -Wl,-mllvm,-wasm-use-legacy-eh=true)
  if(TENSORGRAD_WASM_OPT)
    add_custom_command(TARGET ${name} POST_BUILD
      # Below address 1024 lies the end of the stack, or nothing.
      COMMAND ${TENSORGRAD_WASM_OPT} -Oz --low-memory-unused --one-caller-inline-max-function-size=40
              --always-inline-max-function-size=4 --enable-exception-handling --enable-bulk-memory
              --enable-sign-ext --enable-mutable-globals --enable-nontrapping-float-to-int
              --enable-multivalue --enable-reference-types $<TARGET_FILE:${name}> -o $<TARGET_FILE:${name}>
      COMMENT "Making ${name}.wasm smaller")
  endif()
endfunction()
