# An overlay port: vcpkg install ddpxx --overlay-ports=packaging/vcpkg/ports. It builds this source tree.
# vcpkg does not see changes of the tree: with --binarysource=clear it builds anew instead of restoring an earlier build.
set(VCPKG_LIBRARY_LINKAGE static)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -DDDPXX_BUILD_PROGRAMS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/ddpxx)
vcpkg_fixup_pkgconfig()
vcpkg_copy_tools(TOOL_NAMES ddpxx-run AUTO_CLEAN)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
