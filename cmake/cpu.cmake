# The CPU backend: LLVM's JIT for kernels, oneDNN for contractions. Their headers are seen by the
# files of src/runtime/cpu only.
find_package(LLVM CONFIG QUIET HINTS /usr/lib/llvm-22 /usr/lib/llvm-21 /usr/lib/llvm-20 /usr/lib/llvm-19)
if(NOT LLVM_FOUND OR LLVM_VERSION_MAJOR LESS 19)
  message(FATAL_ERROR "The CPU backend needs LLVM 19 or newer (Debian: llvm-22-dev); "
                      "-DTENSORGRAD_CPU=OFF builds without it")
endif()
find_package(dnnl CONFIG REQUIRED)
file(GLOB TENSORGRAD_CPU_SOURCES CONFIGURE_DEPENDS src/runtime/cpu/*.cpp)
target_sources(tensorgrad PRIVATE ${TENSORGRAD_CPU_SOURCES})
set_source_files_properties(${TENSORGRAD_CPU_SOURCES} PROPERTIES
  COMPILE_OPTIONS "-isystem${LLVM_INCLUDE_DIRS}")
target_compile_definitions(tensorgrad PRIVATE TENSORGRAD_WITH_CPU)
target_link_libraries(tensorgrad PRIVATE LLVM DNNL::dnnl)
target_link_directories(tensorgrad PRIVATE ${LLVM_LIBRARY_DIRS})
