# FindPFR.cmake — Boost.PFR with the names of fields (Boost 1.84 or later). Headers only; provides PFR::pfr.
#
# Looks in Boost_ROOT, in CMAKE_PREFIX_PATH and the system, in what `./dev setup` fetched, and at last where the
# installed ddpxx was built against it.

# A relative folder means the same as in FindLibTorch.cmake: one of the command line is below the folder in which cmake was
# called, any other one below the project's.
if(DEFINED CACHE{Boost_ROOT})
  get_property(_type CACHE Boost_ROOT PROPERTY TYPE)
  if(_type STREQUAL "UNINITIALIZED")
    set(Boost_ROOT "$CACHE{Boost_ROOT}" CACHE PATH "Folder of Boost, which holds include/boost/pfr.hpp")
  endif()
endif()
cmake_path(CONVERT "$ENV{Boost_ROOT}" TO_CMAKE_PATH_LIST _environment)
set(_roots ${Boost_ROOT} ${_environment})
list(TRANSFORM _roots REPLACE "^([^/].*)$" "${CMAKE_SOURCE_DIR}/\\1")

find_path(PFR_INCLUDE_DIR boost/pfr/core_name.hpp
  HINTS ${_roots}
  PATHS ${CMAKE_CURRENT_LIST_DIR}/../.deps/site/cmeel.prefix ${DDPXX_PFR_HINT}
  PATH_SUFFIXES include)

set(PFR_VERSION PFR_VERSION-NOTFOUND)
if(PFR_INCLUDE_DIR AND EXISTS "${PFR_INCLUDE_DIR}/boost/version.hpp")
  file(STRINGS "${PFR_INCLUDE_DIR}/boost/version.hpp" line REGEX "define BOOST_LIB_VERSION ")
  string(REGEX REPLACE ".*\"([0-9]+)_([0-9]+).*" "\\1.\\2" PFR_VERSION "${line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PFR
  REQUIRED_VARS PFR_INCLUDE_DIR
  VERSION_VAR PFR_VERSION
  REASON_FAILURE_MESSAGE "Boost 1.84 or later is needed for boost/pfr/core_name.hpp: run `./dev setup` in the \
ddpxx source tree, or set Boost_ROOT")

if(PFR_FOUND AND NOT TARGET PFR::pfr)
  add_library(PFR::pfr INTERFACE IMPORTED)
  set_target_properties(PFR::pfr PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${PFR_INCLUDE_DIR}")
endif()
mark_as_advanced(PFR_INCLUDE_DIR)
