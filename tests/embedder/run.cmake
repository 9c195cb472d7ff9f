# Installs the build into a fresh prefix, builds the embedder against it and compares what it prints.
# Variables: BUILD, SOURCE, SCRATCH, COMPILER.
file(REMOVE_RECURSE ${SCRATCH})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCMAKE_CXX_COMPILER=${COMPILER}
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${SCRATCH}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/build/embedder OUTPUT_VARIABLE printed
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
# 1 + gelu(2x) at -1, 0 and 1, where gelu(v) = v/2 (1 + erf(v/√2)).
set(expected "0.9545 1.0000 2.9545")
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "the embedder printed '${printed}', expected '${expected}'")
endif()
