# DdpxxProgram.cmake — ddpxx_program(NAME SOURCES...): an executable of this project, with its warnings.

set(ddpxx_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(DDPXX_WARNINGS_AS_ERRORS)
  list(APPEND ddpxx_warnings -Werror)
endif()

function(ddpxx_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ddpxx::ddpxx)
  target_compile_options(${name} PRIVATE ${ddpxx_warnings})
endfunction()
