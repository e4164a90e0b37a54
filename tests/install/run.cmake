# Runs one mode of the install tests: makes the library available to the project in this folder in
# the way that MODE names, builds the project's program and, where the library is built, runs it.
#   cmake -D MODE= -D FULL= -D SOURCE= -D BUILD= -D CXX= -D FLAGS= -D CPU= -P run.cmake
cmake_minimum_required(VERSION 3.25)

set(work ${BUILD}/install-test/${MODE})
set(expected "shape [3, 3]\n")

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "install.${MODE}: ${what} fails (${status}):\n${output}")
  endif()
endfunction()

set(options -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${CXX}
    "-DCMAKE_CXX_FLAGS=${FLAGS}")
set(link ON)
file(REMOVE_RECURSE ${work}/prefix ${work}/moved ${work}/program)

if(MODE MATCHES "package|pkg_config")
  set(library ${BUILD})
  if(MODE MATCHES "^shared_")
    set(library ${BUILD}/install-test/shared)
    run("configuring the shared library" ${CMAKE_COMMAND} -S ${SOURCE} -B ${library} ${options}
        -D BUILD_SHARED_LIBS=ON -D TENSORGRAD_CPU=${CPU} -D TENSORGRAD_TOOLS=OFF
        -D TENSORGRAD_TESTS=OFF -D TENSORGRAD_EXAMPLES=OFF)
    run("building the shared library" ${CMAKE_COMMAND} --build ${library})
  endif()
  run("installing" ${CMAKE_COMMAND} --install ${library} --prefix ${work}/prefix)
  # An installed tree must not remember where it was made.
  file(RENAME ${work}/prefix ${work}/moved)
  string(REGEX REPLACE "^shared_" "" from ${MODE})
  list(APPEND options -D TENSORGRAD_FROM=${from} -D CMAKE_PREFIX_PATH=${work}/moved)
  file(GLOB_RECURSE installed LIST_DIRECTORIES false ${work}/moved/*.cmake ${work}/moved/*.pc)
  foreach(file IN LISTS installed)
    file(READ ${file} text)
    foreach(place ${SOURCE} ${BUILD})
      string(FIND "${text}" "${place}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "install.${MODE}: ${file} names ${place}")
      endif()
    endforeach()
  endforeach()
else()
  set(link ${FULL})
  list(APPEND options -D TENSORGRAD_FROM=${MODE} -D TENSORGRAD_SOURCE=${SOURCE}
       -D TENSORGRAD_CPU=${CPU})
endif()

run("configuring the program" ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/program
    ${options})
if(NOT link)
  run("compiling the program" ${CMAKE_COMMAND} --build ${work}/program
      --target CMakeFiles/program.dir/main.cpp.o)
  return()
endif()
run("building the program" ${CMAKE_COMMAND} --build ${work}/program)

if(MODE STREQUAL "shared_pkg_config")
  file(GLOB shared ${work}/moved/lib*/libtensorgrad.so ${work}/moved/lib/*/libtensorgrad.so)
  cmake_path(GET shared PARENT_PATH folder)
  set(ENV{LD_LIBRARY_PATH} ${folder})
endif()
execute_process(COMMAND ${work}/program/program RESULT_VARIABLE status OUTPUT_VARIABLE output
                ERROR_VARIABLE output)
if(NOT status EQUAL 0 OR NOT output STREQUAL expected)
  message(FATAL_ERROR "install.${MODE}: the program ends with ${status} and prints\n${output}"
                      "instead of\n${expected}")
endif()
