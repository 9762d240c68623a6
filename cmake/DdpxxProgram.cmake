# DdpxxProgram.cmake — ddpxx_program(NAME SOURCES... [HEADER_ONLY]): an executable of this project, with its warnings. It
# links ddpxx::core, unless it is HEADER_ONLY: then it compiles all of ddpxx, with its own options.

set(ddpxx_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(DDPXX_WARNINGS_AS_ERRORS)
  list(APPEND ddpxx_warnings -Werror)
endif()

function(ddpxx_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "HEADER_ONLY" "" "")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  if(arg_HEADER_ONLY)
    target_link_libraries(${name} PRIVATE ddpxx::ddpxx)
  else()
    target_link_libraries(${name} PRIVATE ddpxx::core)
  endif()
  target_compile_options(${name} PRIVATE ${ddpxx_warnings})
endfunction()
