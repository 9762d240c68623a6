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
  # Without this sloppiness ccache does not cache files that use a precompiled header. By the other two settings it takes
  # the list of included files from the compiler, where it would preprocess each file a second time, and keeps the hashes
  # of large files: a file that is not in the cache then takes 3 % longer than without ccache, not 30 %.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 CCACHE_INODECACHE=1 ${DDPXX_CCACHE})
endif()
# Without these options ccache cannot read precompiled headers.
add_compile_options(
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess> "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# A header for ddpxx_precompile, if clang compiles.
set(ddpxx_instances "")
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(ddpxx_instances ${PROJECT_SOURCE_DIR}/cmake/torch_instances.hpp)
endif()

# ddpxx_precompile(NAME FLAGS HEADERS...): makes the object library NAME, which precompiles HEADERS with the flags of the
# target FLAGS. With clang its object file holds the code of all functions in HEADERS that are inline or instantiated
# there, and the files that use the precompiled header do not compile these functions again; that halves their time.
function(ddpxx_precompile name flags)
  file(CONFIGURE OUTPUT ${name}.cpp CONTENT "// The source file that CMake needs to precompile a header.\n" @ONLY)
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${name} PRIVATE ${flags})
  target_precompile_headers(${name} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fmodules-codegen" "SHELL:-Xclang -building-pch-with-obj")
    # Some functions in HEADERS call functions that no library defines; the linker removes them since nothing uses them.
    target_link_options(${name} INTERFACE -Wl,--gc-sections)
  endif()
endfunction()

# ddpxx_use_precompiled(TARGET NAME): compiles TARGET with the header that ddpxx_precompile(NAME) has precompiled.
function(ddpxx_use_precompiled target name)
  target_precompile_headers(${target} REUSE_FROM ${name})
  target_link_libraries(${target} PRIVATE ${name})
endfunction()
