# FindLibTorch.cmake — LibTorch of a Python wheel or of an unzipped LibTorch archive, without nvcc and without Python.
#
# torch's own package file asks for the CUDA compiler as soon as the LibTorch found was built with CUDA; this one
# only looks at files. It provides
#
#   LibTorch::cpu    libtorch_cpu and libc10, their headers (as system headers) and definitions
#   LibTorch::cuda   libtorch_cuda, libc10_cuda, libcudart and NCCL's header; only where all of them are there
#
# and sets LibTorch_VERSION, LibTorch_CUDA_VERSION (empty for a CPU build), LibTorch_CXX11_ABI, LibTorch_HAS_GLOO
# (whether it ships Gloo's headers) and LibTorch_ROOT_DIR.
#
# It looks in LIBTORCH_ROOT, Torch_DIR and CMAKE_PREFIX_PATH (the first and the last as variables and in the environment), in
# what `./dev setup` fetched, where the installed ddpxx was built against it, and at last in the torch package of python3,
# which may be another version than that of ddpxx::core.

# --- where it lies ----------------------------------------------------------------------------------------------

set(_roots "")
foreach(_variable IN ITEMS LIBTORCH_ROOT LibTorch_ROOT)
  # A relative folder of the command line is one below the folder in which cmake was called: CMake makes it absolute as
  # soon as the variable has a type.
  if(DEFINED CACHE{${_variable}})
    get_property(_type CACHE ${_variable} PROPERTY TYPE)
    if(_type STREQUAL "UNINITIALIZED")
      set(${_variable} "$CACHE{${_variable}}" CACHE PATH "Folder of LibTorch, which holds lib/libtorch_cpu.so")
    endif()
  endif()
  list(APPEND _roots ${${_variable}})
endforeach()
set(_named "LIBTORCH_ROOT")
if(NOT _roots)
  set(_named "the environment variable LIBTORCH_ROOT")
  list(APPEND _roots $ENV{LIBTORCH_ROOT})
endif()
list(TRANSFORM _roots REPLACE "^([^/].*)$" "${CMAKE_SOURCE_DIR}/\\1")  # any other relative folder
foreach(_given IN LISTS _roots)
  foreach(_file IN ITEMS lib/libtorch_cpu.so include/ATen/core/Tensor.h)
    if(NOT EXISTS "${_given}/${_file}")
      message(FATAL_ERROR "${_named}=${_given} holds no LibTorch: ${_file} is not there")
    endif()
  endforeach()
endforeach()
if(Torch_DIR)
  list(APPEND _roots "${Torch_DIR}/../../..")  # Torch_DIR is ROOT/share/cmake/Torch
endif()
cmake_path(CONVERT "$ENV{CMAKE_PREFIX_PATH}" TO_CMAKE_PATH_LIST _prefixes)
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH _prefixes)  # ROOT, or ROOT/share/cmake as torch.utils.cmake_prefix_path says
  list(APPEND _roots "${_prefix}" "${_prefix}/../.." "${_prefix}/torch")
endforeach()
list(APPEND _roots "${CMAKE_CURRENT_LIST_DIR}/../.deps/site/torch")

function(_libtorch_first_of result)
  foreach(_root IN LISTS ARGN)
    if(_root AND EXISTS "${_root}/lib/libtorch_cpu.so" AND EXISTS "${_root}/include/ATen/core/Tensor.h")
      file(REAL_PATH "${_root}" _root)
      set(${result} "${_root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
endfunction()

_libtorch_first_of(LibTorch_ROOT_DIR ${_roots})
if(NOT LibTorch_ROOT_DIR)
  _libtorch_first_of(LibTorch_ROOT_DIR "${DDPXX_LIBTORCH_HINT}")
endif()
if(NOT LibTorch_ROOT_DIR)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  _libtorch_first_of(LibTorch_ROOT_DIR "${_python_torch}")
endif()

# --- what it is -------------------------------------------------------------------------------------------------

set(LibTorch_VERSION "")
set(LibTorch_CUDA_VERSION "")
set(LibTorch_CXX11_ABI OFF)
set(LibTorch_HAS_GLOO OFF)
if(LibTorch_ROOT_DIR)
  set(_include "${LibTorch_ROOT_DIR}/include")

  set(_name "")  # like 2.11.0+cu130
  if(EXISTS "${LibTorch_ROOT_DIR}/build-version")
    file(STRINGS "${LibTorch_ROOT_DIR}/build-version" _name LIMIT_COUNT 1)
  elseif(EXISTS "${LibTorch_ROOT_DIR}/version.py")
    file(STRINGS "${LibTorch_ROOT_DIR}/version.py" _name REGEX "^__version__")
  endif()
  if(_name MATCHES "([0-9]+\\.[0-9]+\\.[0-9]+)")
    set(LibTorch_VERSION "${CMAKE_MATCH_1}")
  endif()
  if(_name MATCHES "\\+cu([0-9]+)([0-9])")
    set(LibTorch_CUDA_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
  endif()
  foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS "${_include}/${_header}")
      file(STRINGS "${_include}/${_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      string(REGEX REPLACE ";" "" _lines "${_lines}")
      if(_lines MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
        set(LibTorch_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
      endif()
    endif()
  endforeach()

  file(STRINGS "${LibTorch_ROOT_DIR}/lib/libc10.so" _mangled REGEX "__cxx11" LIMIT_COUNT 1)
  if(_mangled)
    set(LibTorch_CXX11_ABI ON)
  endif()
  if(EXISTS "${_include}/gloo/context.h")
    set(LibTorch_HAS_GLOO ON)
  endif()
endif()

if(LibTorch_FIND_VERSION AND LibTorch_VERSION AND LibTorch_VERSION VERSION_LESS LibTorch_FIND_VERSION)
  message(FATAL_ERROR "ddpxx needs LibTorch ${LibTorch_FIND_VERSION} or later, but this one is "
    "LibTorch ${LibTorch_VERSION} (${LibTorch_ROOT_DIR}). Set LIBTORCH_ROOT to a later one.")
endif()

# --- targets ----------------------------------------------------------------------------------------------------

if(LibTorch_ROOT_DIR AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libc10.so")
  add_library(LibTorch::cpu SHARED IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES
    IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libtorch_cpu.so"
    INTERFACE_LINK_LIBRARIES LibTorch::c10
    INTERFACE_INCLUDE_DIRECTORIES "${_include};${_include}/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO")
  if(NOT LibTorch_CXX11_ABI)
    set_property(TARGET LibTorch::cpu APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=0)
  endif()
endif()

# Finds the first of LIBRARY.so, LIBRARY.so.13 or LIBRARY-HASH.so.13 beside torch, in one of NVIDIA's Python packages
# beside torch's, or in the system's CUDA.
function(_libtorch_library result library)
  set(_found "")
  foreach(_folder "${LibTorch_ROOT_DIR}/lib" "${LibTorch_ROOT_DIR}/../nvidia/*/lib" "/usr/local/cuda/lib64")
    file(GLOB _files "${_folder}/${library}.so*" "${_folder}/${library}-*.so*")
    list(APPEND _found ${_files})
  endforeach()
  list(APPEND _found "")
  list(GET _found 0 _first)
  set(${result} "${_first}" PARENT_SCOPE)
endfunction()

if(LibTorch_ROOT_DIR AND NOT TARGET LibTorch::cuda)
  set(LibTorch_CUDART_INCLUDE_DIR "")
  foreach(_folder IN ITEMS "${LibTorch_ROOT_DIR}/../nvidia/cu13/include" "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
    # The first header includes the others, and some packages of CUDA's headers lack them.
    if(NOT LibTorch_CUDART_INCLUDE_DIR AND EXISTS "${_folder}/cuda_runtime_api.h"
        AND EXISTS "${_folder}/crt/host_config.h" AND EXISTS "${_folder}/nv/target")
      set(LibTorch_CUDART_INCLUDE_DIR "${_folder}")
    endif()
  endforeach()
  # The options of the process group contain a struct of nccl.h, so only the header of the NCCL that torch loads can be
  # used.
  find_path(LibTorch_NCCL_INCLUDE_DIR nccl.h
    HINTS "${LibTorch_ROOT_DIR}/../nvidia/nccl" "${LibTorch_ROOT_DIR}" ${NCCL_ROOT} ENV NCCL_ROOT
    PATH_SUFFIXES include NO_CACHE NO_DEFAULT_PATH)  # a cached one would outlive a change of LIBTORCH_ROOT
  _libtorch_library(_cudart libcudart)
  if(EXISTS "${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so" AND EXISTS "${LibTorch_ROOT_DIR}/lib/libc10_cuda.so"
      AND _cudart AND LibTorch_CUDART_INCLUDE_DIR AND LibTorch_NCCL_INCLUDE_DIR)
    add_library(LibTorch::c10_cuda SHARED IMPORTED)
    set_target_properties(LibTorch::c10_cuda PROPERTIES
      IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libc10_cuda.so")
    add_library(LibTorch::cudart SHARED IMPORTED)
    set_target_properties(LibTorch::cudart PROPERTIES IMPORTED_LOCATION "${_cudart}")
    # No symbol of libtorch_cuda is referenced, because it registers itself: a linker that drops unneeded libraries
    # would drop it.
    add_library(LibTorch::cuda INTERFACE IMPORTED)
    set_target_properties(LibTorch::cuda PROPERTIES
      INTERFACE_LINK_LIBRARIES "LibTorch::cpu;LibTorch::c10_cuda;LibTorch::cudart;-Wl,--push-state,--no-as-needed,\"${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so\",--pop-state"
      INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_CUDART_INCLUDE_DIR};${LibTorch_NCCL_INCLUDE_DIR}"
      INTERFACE_COMPILE_DEFINITIONS "USE_C10D_NCCL")
  endif()
endif()
if(TARGET LibTorch::cuda)
  set(LibTorch_cuda_FOUND ON)
endif()
set(LibTorch_cpu_FOUND ON)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT_DIR LibTorch_VERSION
  VERSION_VAR LibTorch_VERSION
  HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "run `./dev setup` in the ddpxx source tree, or set LIBTORCH_ROOT to the folder \
of LibTorch: the one that holds lib/libtorch_cpu.so")

if(LibTorch_FOUND AND NOT LibTorch_FIND_QUIETLY)
  if(LibTorch_CUDA_VERSION)
    set(_cuda "CUDA ${LibTorch_CUDA_VERSION}")
  else()
    set(_cuda "no CUDA")
  endif()
  message(STATUS "LibTorch ${LibTorch_VERSION}, ${_cuda}, C++11 ABI ${LibTorch_CXX11_ABI}: ${LibTorch_ROOT_DIR}")
endif()
