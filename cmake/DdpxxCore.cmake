# DdpxxCore.cmake — ddpxx::core, a library of the functions that are not templates; ddpxx/core/inline.hpp says how it
# works.

file(GLOB _sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp)
add_library(ddpxx_core STATIC ${_sources})
add_library(ddpxx::core ALIAS ddpxx_core)
target_link_libraries(ddpxx_core PUBLIC ddpxx)
target_compile_definitions(ddpxx_core PUBLIC DDPXX_CORE)
target_compile_options(ddpxx_core PRIVATE ${ddpxx_warnings})
set_target_properties(ddpxx_core PROPERTIES EXPORT_NAME core POSITION_INDEPENDENT_CODE ON)
if(NOT DDPXX_INSTALL)
  set_target_properties(ddpxx_core PROPERTIES EXCLUDE_FROM_ALL ON)  # compiled only in a project that links it
endif()
