# DdpxxVersion.cmake — checks that the version in the header is that of the project.

file(STRINGS ${PROJECT_SOURCE_DIR}/include/ddpxx/version.hpp _line REGEX "kVersion")
if(NOT _line MATCHES "major = ([0-9]+), .minor = ([0-9]+), .patch = ([0-9]+)")
  message(FATAL_ERROR "include/ddpxx/version.hpp: kVersion is not written as this file expects it")
endif()
set(_header_version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
if(NOT _header_version STREQUAL PROJECT_VERSION)
  message(FATAL_ERROR "include/ddpxx/version.hpp says ${_header_version}, CMakeLists.txt says ${PROJECT_VERSION}")
endif()
