# DdpxxS3.cmake — ddpxx::s3, for programs that keep objects behind s3://; made only if aws-c-s3 is found.

block()
  list(APPEND CMAKE_PREFIX_PATH ${PROJECT_SOURCE_DIR}/.deps/crt)  # built by `./dev setup s3`; searched last
  set(CMAKE_MESSAGE_LOG_LEVEL NOTICE)
  find_package(aws-c-s3 QUIET GLOBAL)
endblock()

# The package does not state its version: look for a member that version 1.5 has added.
set(_aws_fits "")
if(TARGET AWS::aws-c-s3)
  find_file(_aws_header aws/s3/s3_client.h HINTS ${aws-c-s3_DIR}/../../.. PATH_SUFFIXES include NO_CACHE)
  if(_aws_header)
    file(STRINGS ${_aws_header} _aws_fits REGEX "aws_byte_buf \\*recv_buffer;")
  endif()
  if(NOT _aws_fits)
    message(STATUS "aws-c-s3 in ${aws-c-s3_DIR} is older than 1.5: no ddpxx::s3")
  endif()
endif()

# cmake/ddpxxConfig.cmake.in repeats this for the installed package.
if(_aws_fits)
  add_library(ddpxx_s3 INTERFACE)
  add_library(ddpxx::s3 ALIAS ddpxx_s3)
  target_link_libraries(ddpxx_s3 INTERFACE ddpxx AWS::aws-c-s3)
  target_compile_definitions(ddpxx_s3 INTERFACE DDPXX_WITH_S3=1)
endif()
