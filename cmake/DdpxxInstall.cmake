# DdpxxInstall.cmake — installs headers, the library ddpxx::core, targets, find modules and programs, so that
# find_package(ddpxx CONFIG) and pkg-config work in other projects; cpack makes a Debian package of them.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddpxx)

install(TARGETS ddpxx EXPORT ddpxx FILE_SET HEADERS FILE_SET more_headers)
install(TARGETS ddpxx_core EXPORT ddpxx)
install(EXPORT ddpxx NAMESPACE ddpxx:: DESTINATION ${package_dir} FILE ddpxxTargets.cmake)
# Installs only the programs that were built, so that a missing one does not stop the installation.
foreach(program ddpxx-run ddpxx_tool)
  if(TARGET ${program})
    install(TARGETS ${program} OPTIONAL)
  endif()
endforeach()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ddpxxConfig.cmake.in ${PROJECT_BINARY_DIR}/ddpxxConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddpxxConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ddpxxConfig.cmake ${PROJECT_BINARY_DIR}/ddpxxConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindLibTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/FindPFR.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindPCRE2.cmake
  DESTINATION ${package_dir})

# ddpxx.pc is for the compiled core. It names the LibTorch of this build, as the targets do.
file(RELATIVE_PATH DDPXX_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(_includes "")
# range-v3 has its folder at a target of another name. yaml-cpp has a .pc file of its own.
foreach(_target LibTorch::cpu PFR::pfr range-v3::range-v3 range-v3 nlohmann_json::nlohmann_json)
  set(_folders "")
  if(TARGET ${_target})
    get_target_property(_folders ${_target} INTERFACE_INCLUDE_DIRECTORIES)
  endif()
  if(_folders)
    list(APPEND _includes ${_folders})
  endif()
endforeach()
list(FILTER _includes EXCLUDE REGEX "\\$<")  # generator expressions, which only CMake reads
list(REMOVE_DUPLICATES _includes)
# The compiler's own folders must not be named: g++ then no longer finds stdlib.h from its cstdlib.
list(REMOVE_ITEM _includes ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
# A blank in a path is escaped. pkgconf 1.8 keeps the backslash behind -I, and loses it behind -isystem.
list(TRANSFORM _includes REPLACE " " "\\\\ ")
list(TRANSFORM _includes PREPEND "-I" REGEX " ")
list(TRANSFORM _includes PREPEND "-isystem " REGEX "^[^-]")
if(NOT LibTorch_HAS_GLOO)
  list(APPEND _includes "-I\${includedir}/ddpxx/comm/gloo_declarations")  # the prefix may have a blank
endif()
list(JOIN _includes " " DDPXX_PC_INCLUDES)
get_target_property(_definitions LibTorch::cpu INTERFACE_COMPILE_DEFINITIONS)
list(APPEND _definitions DDPXX_CORE)
list(TRANSFORM _definitions PREPEND -D)
list(JOIN _definitions " " DDPXX_PC_DEFINITIONS)
string(REPLACE " " "\\ " DDPXX_PC_LIBTORCH "${LibTorch_ROOT_DIR}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/ddpxx.pc.in ${PROJECT_BINARY_DIR}/ddpxx.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ddpxx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()  # CPack packs what the whole project installs
endif()

# LibTorch and Boost.PFR are not packages of Debian: CMake finds them where this build has found them, or where
# LIBTORCH_ROOT and Boost_ROOT say. The program ddpxx has the folder of LibTorch in its RUNPATH; docs/packaging.md says
# how to name another one. libpcre2-dev, for ddpxx::tokenizer, brings the library that the program loads.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "the maintainers of ddpxx")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME libddpxx-dev)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
# Each minor version of yaml-cpp has a soname of its own, so the programs load only the one that they were linked with.
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" _yaml_minor "${yaml-cpp_VERSION}")
math(EXPR _yaml_next "${CMAKE_MATCH_2} + 1")
string(CONCAT CPACK_DEBIAN_PACKAGE_DEPENDS
  "g++ (>= 4:12), librange-v3-dev (>= 0.12), libyaml-cpp-dev (>= ${_yaml_minor}), "
  "libyaml-cpp-dev (<< ${CMAKE_MATCH_1}.${_yaml_next}), libpcre2-dev (>= 10.40), "
  "nlohmann-json3-dev (>= 3.11), libssl3 (>= 3)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "patchelf, pkg-config")
include(CPack)
