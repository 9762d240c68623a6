# DdpxxDevelopment.cmake — settings of ddpxx's own build; projects that use ddpxx do not get them.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_CXX_EXTENSIONS OFF)

# Compiling a file that includes all of LibTorch takes more than a gigabyte of memory.
set(DDPXX_COMPILE_JOBS 2 CACHE STRING "How many files are compiled at the same time")
set_property(GLOBAL PROPERTY JOB_POOLS compile=${DDPXX_COMPILE_JOBS})
set(CMAKE_JOB_POOL_COMPILE compile)
set(CMAKE_JOB_POOL_PRECOMPILE_HEADER compile)

find_program(DDPXX_CCACHE ccache)
mark_as_advanced(DDPXX_CCACHE)
if(DDPXX_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these settings ccache does not cache files that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${DDPXX_CCACHE})
endif()
# Without these options ccache cannot read precompiled headers.
add_compile_options(
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess> "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
