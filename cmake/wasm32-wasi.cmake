# Toolchain of the browser build: Debian's clang for WebAssembly with wasi-libc and libc++.
#   cmake -S . -B build/web -DCMAKE_TOOLCHAIN_FILE=cmake/wasm32-wasi.cmake
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_C_COMPILER clang-22)
set(CMAKE_CXX_COMPILER clang++-22)
set(CMAKE_AR llvm-ar-22)
set(CMAKE_RANLIB llvm-ranlib-22)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
# Exceptions in the form that every current browser and Node 20 know.
set(flags "-fwasm-exceptions -mllvm -wasm-use-legacy-eh=true -ffunction-sections -fdata-sections -Wno-deprecated")
set(CMAKE_C_FLAGS_INIT "${flags}")
# Optimised as a whole at the link: a twentieth smaller.
set(CMAKE_CXX_FLAGS_INIT "${flags} -flto")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(TENSORGRAD_WEB ON CACHE BOOL "Build for the browser" FORCE)
set(TENSORGRAD_CPU OFF CACHE BOOL "Build the CPU backend" FORCE)
