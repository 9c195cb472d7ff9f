# Targets made from folders. A source file is found by where it lies; none is listed by hand.
#
# The include table is held by include paths: a target's path is a small forest of symbolic links
# in the build folder that holds the target's own folder only, and what it links adds theirs. So
# `#include "jit/…"` from ir/ does not compile.
# Makes ${HEDDLE_FOREST}/<name>/<path> a link to <source>/<path>; returns the forest's root.
function(heddle_forest name path result)
  get_filename_component(parent ${HEDDLE_FOREST}/${name}/${path} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${path} ${HEDDLE_FOREST}/${name}/${path} SYMBOLIC)
  set(${result} ${HEDDLE_FOREST}/${name} PARENT_SCOPE)
endfunction()

# Sources below `folder`, without those whose path matches a pattern after it.
function(heddle_sources result folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  foreach(pattern IN LISTS ARGN)
    list(FILTER sources EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/${pattern}")
  endforeach()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# Sets `result` to a source file in which `namespace`::`name` is a string that changes with what the files `ARGN` contain: for
# keys of what is on disk.
function(heddle_hash_sources result namespace name)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}_${namespace}.cpp)
  string(REPLACE "::" "_" output ${output})
  set(script ${PROJECT_SOURCE_DIR}/scripts/cmake/HashSources.cmake)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D NAMESPACE=${namespace} -D NAME=${name}
      "-D SOURCES=${ARGN}" -P ${script}
    DEPENDS ${ARGN} ${script} VERBATIM)
  set(${result} ${output} PARENT_SCOPE)
endfunction()

# Compiles the sources of `target` in batches, which share what they read of headers and instantiate of templates: more
# than half of what there is to compile. Those with options of their own stay alone.
function(heddle_batch target size)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${HEDDLE_UNITY} UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

# A static library heddle_<name> of `SOURCES`, seeing its own folder `PATH` and what it `LINKS`.
# A folder without sources still has a target, so that others can name it.
function(heddle_folder name)
  cmake_parse_arguments(arg "" "PATH" "SOURCES;LINKS;INCLUDES" ${ARGN})
  heddle_forest(${name} ${arg_PATH} forest)
  set(target heddle_${name})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE heddle_flags)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${forest} ${arg_INCLUDES})
  target_link_libraries(${target} ${scope} ${arg_LINKS})
endfunction()

# An executable of `SOURCES` built with the project's flags.
function(heddle_executable target)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE heddle_flags ${arg_LINKS})
endfunction()

# What works when a graph is compiled, not when it runs: the first level of optimisation builds it in three quarters
# of the time.
set(HEDDLE_RUNS_ONCE $<$<CONFIG:Release>:-O1>)

# All of `target` runs once, but for the sources of this directory whose paths match `pattern`.
function(heddle_runs_once target)
  cmake_parse_arguments(arg "" "EXCEPT" "" ${ARGN})
  target_compile_options(${target} PRIVATE ${HEDDLE_RUNS_ONCE})
  if(arg_EXCEPT)
    get_target_property(hot ${target} SOURCES)
    list(FILTER hot INCLUDE REGEX ${arg_EXCEPT})
    set_property(SOURCE ${hot} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O2>)
    # GCC 12 crashes on a header that it precompiled at another level.
    set_property(SOURCE ${hot} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# What most sources of the product read of the standard library.
set(HEDDLE_STANDARD_HEADERS <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <span>
  <string> <string_view> <unordered_map> <utility> <vector>)

# Compiles `headers` once for all sources of a target, where that costs less than it saves.
function(heddle_precompile target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(count GREATER 3)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    heddle_let_ccache_see(${target})
  endif()
endfunction()

# Gives `target` the headers that `other`, with the same flags, compiled.
function(heddle_reuse_precompiled target other)
  target_precompile_headers(${target} REUSE_FROM ${other})
  heddle_let_ccache_see(${target})
endfunction()

# What ccache needs to see through a precompiled header.
function(heddle_let_ccache_see target)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()
