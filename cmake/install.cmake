# What `cmake --install` puts in place: headers, library, tool, CMake package, pkg-config file.
include(CMakePackageConfigHelpers)

get_target_property(TENSORGRAD_LIBRARY_TYPE tensorgrad TYPE)
if(TENSORGRAD_LIBRARY_TYPE STREQUAL "STATIC_LIBRARY")
  set(TENSORGRAD_IS_STATIC ON)
else()
  set(TENSORGRAD_IS_STATIC OFF)
endif()
set(TENSORGRAD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tensorgrad)

install(TARGETS tensorgrad EXPORT tensorgradTargets)
install(DIRECTORY include/tensorgrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET tensorgrad_cli)
  # A shared library is found beside the tool wherever the tree is moved to.
  file(RELATIVE_PATH TENSORGRAD_BIN_TO_LIB ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(tensorgrad_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${TENSORGRAD_BIN_TO_LIB}")
  install(TARGETS tensorgrad_cli)
endif()

install(EXPORT tensorgradTargets NAMESPACE tensorgrad:: DESTINATION ${TENSORGRAD_CMAKE_DIR})
configure_package_config_file(cmake/tensorgradConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tensorgradConfig.cmake INSTALL_DESTINATION ${TENSORGRAD_CMAKE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tensorgradConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tensorgradConfig.cmake
              ${PROJECT_BINARY_DIR}/tensorgradConfigVersion.cmake
        DESTINATION ${TENSORGRAD_CMAKE_DIR})

# pkg-config has no notion of which kind of library is installed, so that of a static one names all
# that it needs.
file(RELATIVE_PATH TENSORGRAD_PC_PREFIX
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(TENSORGRAD_PC_REQUIRES "")
set(TENSORGRAD_PC_LIBS "")
if(TENSORGRAD_IS_STATIC)
  set(TENSORGRAD_PC_REQUIRES "fmt, zlib")
  if(TENSORGRAD_CPU)
    set(TENSORGRAD_PC_LIBS " -L${LLVM_LIBRARY_DIR} -lLLVM -ldnnl")
  endif()
endif()
configure_file(cmake/tensorgrad.pc.in ${PROJECT_BINARY_DIR}/tensorgrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tensorgrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
