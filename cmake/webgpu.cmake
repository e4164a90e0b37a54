# The WebGPU backend. It needs no package: Dawn is opened at run time (scripts/setup --webgpu).
file(GLOB TENSORGRAD_WEBGPU_SOURCES CONFIGURE_DEPENDS src/runtime/webgpu/*.cpp)
target_sources(tensorgrad PRIVATE ${TENSORGRAD_WEBGPU_SOURCES})
target_compile_definitions(tensorgrad PRIVATE TENSORGRAD_WITH_WEBGPU)
target_link_libraries(tensorgrad PRIVATE ${CMAKE_DL_LIBS})
