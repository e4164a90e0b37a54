install(TARGETS tensorgrad EXPORT tensorgradTargets)
install(DIRECTORY include/tensorgrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
