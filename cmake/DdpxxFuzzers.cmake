# DdpxxFuzzers.cmake — builds each tests/fuzz/NAME.cpp as build/fuzz/bin/fuzz_NAME, with clang's libFuzzer.

file(GLOB _sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.cpp)
add_custom_target(fuzzers)
foreach(_source IN LISTS _sources)
  cmake_path(GET _source STEM _name)
  ddpxx_program(fuzz_${_name} ${_source} HEADER_ONLY)
  if(TARGET ddpxx::tokenizer)
    target_link_libraries(fuzz_${_name} PRIVATE ddpxx::tokenizer)
  endif()
  target_compile_options(fuzz_${_name} PRIVATE -g -O1 -fsanitize=fuzzer,address,undefined
    -fno-sanitize-recover=undefined)  # makes undefined behaviour end the fuzzer instead of printing a line
  target_link_options(fuzz_${_name} PRIVATE -fsanitize=fuzzer,address,undefined)
  set_target_properties(fuzz_${_name} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(fuzzers fuzz_${_name})
endforeach()
