# DdpxxInstall.cmake — installs headers, the library ddpxx::core, targets, find modules and programs, so that
# find_package(ddpxx CONFIG) works in other projects.

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
