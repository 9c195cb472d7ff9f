# Options, compiler flags and where things are built.
include(GNUInstallDirs)

option(HEDDLE_WITH_LLVM "Compile CPU kernels with LLVM" ON)
option(HEDDLE_WITH_ONEDNN "Run large convolutions and matmuls on oneDNN" ON)
option(HEDDLE_WITH_ONNX "Import ONNX models" ON)
option(HEDDLE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HEDDLE_BUILD_BENCH "Build the microbenchmarks" ${PROJECT_IS_TOP_LEVEL})
option(HEDDLE_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(HEDDLE_GPU_SUITE "Build what scripts/gpu_bundle packs, without LLVM too" OFF)
option(HEDDLE_UNITY "Compile sources in batches" ON)
option(HEDDLE_GROUP_TESTS "Register each test binary as one test instead of one per case" OFF)
set(HEDDLE_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/through_ccache ${HEDDLE_CCACHE})
endif()

# The flags every source of ours is built with.
add_library(heddle_flags INTERFACE)
target_compile_options(heddle_flags INTERFACE
  -Wall -Wextra -Werror
  # Designated initialisers leave the other members at their defaults on purpose.
  -Wno-missing-field-initializers
  # GCC 12 reports these in inlined standard library code that is right.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict$<SEMICOLON>-Wno-maybe-uninitialized$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>-Wno-stringop-overread$<SEMICOLON>-Wno-array-bounds>
  # Nothing reads errno or floating-point traps; value-changing options stay off.
  -fno-math-errno -fno-trapping-math
  -ffunction-sections -fdata-sections)

# GCC looks for memory to give back once it has 128 MB, which costs a tenth of the time: a source needs a GB at most.
cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
if(memory_mib GREATER 6000)
  target_compile_options(heddle_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>)
endif()

# __FILE__ and std::source_location name files from the repository root, whether the compiler was
# given absolute paths or, by ccache, relative ones. The last map that matches wins.
set(HEDDLE_FOREST ${PROJECT_BINARY_DIR}/include_forest)
file(RELATIVE_PATH up ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
target_compile_options(heddle_flags INTERFACE
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${up}=)
foreach(forest base ir device jit scheduler memory engine onnx cli tests bench)
  target_compile_options(heddle_flags INTERFACE
    -fmacro-prefix-map=${HEDDLE_FOREST}/${forest}/= -fmacro-prefix-map=include_forest/${forest}/=)
endforeach()

# What a build was made with. Only what asks has these, so that all else compiles alike whatever the options are and a
# compiler cache serves it.
set(HEDDLE_OPTIONS
  HEDDLE_WITH_LLVM=$<BOOL:${HEDDLE_WITH_LLVM}>
  HEDDLE_WITH_ONEDNN=$<BOOL:${HEDDLE_WITH_ONEDNN}>
  HEDDLE_WITH_ONNX=$<BOOL:${HEDDLE_WITH_ONNX}>)

target_link_options(heddle_flags INTERFACE -Wl,--gc-sections -Wl,--as-needed)

# mold links a binary that holds LLVM in a second; lld in a few; GNU ld in many. Without pages of their own for code, mold 1.10 lets what
# is protected after relocation begin on a page before that of thread-local zeros, where the loader then refuses the binary.
if(NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
  find_program(HEDDLE_MOLD mold)
  find_program(HEDDLE_LLD NAMES ld.lld)
  if(HEDDLE_MOLD)
    target_link_options(heddle_flags INTERFACE -fuse-ld=mold -Wl,-z,separate-code)
  elseif(HEDDLE_LLD)
    target_link_options(heddle_flags INTERFACE -fuse-ld=lld)
  endif()
endif()

if(HEDDLE_SANITIZE)
  target_compile_options(heddle_flags INTERFACE
    # Checks make the second level cost twice the compile time of the first.
    -O1 -fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1
    # The vptr check needs type information that LLVM's archives are built without.
    -fno-sanitize=vptr)
  target_link_options(heddle_flags INTERFACE -fsanitize=${HEDDLE_SANITIZE})
endif()
