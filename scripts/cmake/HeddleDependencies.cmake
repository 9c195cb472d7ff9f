# Third-party libraries, each behind one target. None of their headers reaches a public header.
find_package(Threads REQUIRED)
find_package(TBB REQUIRED CONFIG)
find_package(fmt REQUIRED CONFIG)

find_path(HEDDLE_XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(HEDDLE_XXHASH_LIBRARY xxhash REQUIRED)
add_library(heddle_xxhash INTERFACE)
target_include_directories(heddle_xxhash SYSTEM INTERFACE ${HEDDLE_XXHASH_INCLUDE})
target_link_libraries(heddle_xxhash INTERFACE ${HEDDLE_XXHASH_LIBRARY})

# What the command, the tests and the benchmarks need besides; without it they are not built.
find_package(nlohmann_json CONFIG QUIET)

# LLVM's include path is given to one target (see heddle_use_llvm) and to none that links it.
if(HEDDLE_WITH_LLVM)
  find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19)
  llvm_map_components_to_libnames(HEDDLE_LLVM_LIBRARIES
    core orcjit native passes support target X86)
endif()

if(HEDDLE_WITH_ONEDNN)
  find_path(HEDDLE_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
  find_library(HEDDLE_ONEDNN_LIBRARY dnnl REQUIRED)
endif()

if(HEDDLE_WITH_ONNX)
  find_program(HEDDLE_PROTOC protoc REQUIRED)
  find_path(HEDDLE_PROTOBUF_INCLUDE google/protobuf/message_lite.h REQUIRED)
  # Debian's archive is not position-independent, so the lite runtime is linked as a shared library.
  # It holds no registry of message types; ours have a package of their own and hidden symbols.
  find_library(HEDDLE_PROTOBUF_LITE protobuf-lite REQUIRED)
endif()

# Gives the sources of `target` LLVM's headers. They are compiled without type information, as
# LLVM itself is, so that classes may derive from LLVM's.
function(heddle_use_llvm target)
  separate_arguments(definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
  target_include_directories(${target} SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
  target_compile_options(${target} PRIVATE -fno-rtti -DNDEBUG ${definitions})
endfunction()

function(heddle_use_onednn target)
  if(NOT ARGN)
    return()
  endif()
  target_link_libraries(${target} PRIVATE ${HEDDLE_ONEDNN_LIBRARY})
endfunction()
