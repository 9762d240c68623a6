# one_file.cmake — a page_program() for pages.cmake by which all programs are compiled as one file, in a quarter of the time:
# each in a namespace of its own name, after the headers of all of them. add_pages() then makes the library `pages` of them.
# A program that lacks an include compiles here, if another one has it. The long tests compile each program by itself.

set(page_headers "")
set(page_namespaces "")
function(page_program name source)
  file(READ ${source} code)
  string(REGEX MATCHALL "#include <[^\n]*>\n" headers "${code}")
  string(REGEX REPLACE "#include <[^\n]*>\n" "" code "${code}")
  string(REPLACE "int main()" "int main(int, char**)" code "${code}")
  set(page_headers "${page_headers}${headers}" PARENT_SCOPE)
  set(page_namespaces "${page_namespaces}namespace ${name} {\n${code}}  // namespace ${name}\n\n" PARENT_SCOPE)
  file(CONFIGURE OUTPUT main_of_${name}.cpp CONTENT
    "namespace @name@ {\nint main(int argc, char** argv);\n}\nint main(int argc, char** argv) { return @name@::main(argc, argv); }\n"
    @ONLY)
  add_executable(${name} ${CMAKE_CURRENT_BINARY_DIR}/main_of_${name}.cpp)
  target_link_libraries(${name} PRIVATE pages)
endfunction()

function(add_pages)
  string(REPLACE ";" "" page_headers "${page_headers}")
  file(CONFIGURE OUTPUT pages.cpp CONTENT "@page_headers@\n@page_namespaces@" @ONLY)
  add_library(pages STATIC ${CMAKE_CURRENT_BINARY_DIR}/pages.cpp)
endfunction()
