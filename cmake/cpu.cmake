# The CPU backend: LLVM's JIT for kernels, oneDNN for contractions. Their headers are seen by the
# files of src/runtime/cpu only.
find_package(LLVM CONFIG QUIET HINTS /usr/lib/llvm-22 /usr/lib/llvm-21 /usr/lib/llvm-20 /usr/lib/llvm-19)
if(NOT LLVM_FOUND OR LLVM_VERSION_MAJOR LESS 19)
  message(FATAL_ERROR "The CPU backend needs LLVM 19 or newer (Debian: llvm-22-dev); "
                      "-DTENSORGRAD_CPU=OFF builds without it")
endif()
# Debian's dnnlConfig.cmake asks for OpenCL, which the CPU engine does not use.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "The CPU backend needs oneDNN (Debian: libdnnl-dev); "
                      "-DTENSORGRAD_CPU=OFF builds without it")
endif()
file(GLOB TENSORGRAD_CPU_SOURCES CONFIGURE_DEPENDS src/runtime/cpu/*.cpp)
target_sources(tensorgrad PRIVATE ${TENSORGRAD_CPU_SOURCES})
set_source_files_properties(${TENSORGRAD_CPU_SOURCES} PROPERTIES
  COMPILE_OPTIONS "-isystem${LLVM_INCLUDE_DIRS}")
target_compile_definitions(tensorgrad PRIVATE TENSORGRAD_WITH_CPU)
target_include_directories(tensorgrad SYSTEM PRIVATE $<BUILD_INTERFACE:${DNNL_INCLUDE_DIR}>)
# The shared libLLVM, also for a static build: it links in a second and all its parts are there.
# An installed static library names both by targets that its package file defines.
target_link_libraries(tensorgrad PRIVATE
  $<BUILD_INTERFACE:LLVM> $<INSTALL_INTERFACE:tensorgrad::llvm>
  $<BUILD_INTERFACE:${DNNL_LIBRARY}> $<INSTALL_INTERFACE:tensorgrad::dnnl>)
