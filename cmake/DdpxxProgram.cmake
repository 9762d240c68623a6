# DdpxxProgram.cmake — ddpxx_program(NAME SOURCES... [HEADER_ONLY] [GPU]): an executable of this project, with its
# warnings. It links ddpxx::core, unless it is HEADER_ONLY: then it compiles all of ddpxx, with its own options. GPU: it
# links ddpxx::cuda as well where DDPXX_CUDA is on.

set(ddpxx_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(DDPXX_WARNINGS_AS_ERRORS)
  list(APPEND ddpxx_warnings -Werror)
endif()

function(ddpxx_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "HEADER_ONLY;GPU" "" "")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  if(arg_HEADER_ONLY)
    target_link_libraries(${name} PRIVATE ddpxx::ddpxx)
  else()
    target_link_libraries(${name} PRIVATE ddpxx::core)
  endif()
  if(arg_GPU AND DDPXX_CUDA)
    target_link_libraries(${name} PRIVATE ddpxx::cuda)
  endif()
  target_compile_options(${name} PRIVATE ${ddpxx_warnings})
endfunction()
