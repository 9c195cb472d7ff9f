# Writes OUTPUT, in which NAME of NAMESPACE says what the files SOURCES contain:
# cmake -D OUTPUT=… -D NAMESPACE=… -D NAME=… -D SOURCES=… -P HashSources.cmake
set(hashes "")
foreach(source ${SOURCES})
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 32 hash)
file(WRITE ${OUTPUT} "namespace ${NAMESPACE} {
extern const char* const ${NAME};
const char* const ${NAME} = \"${hash}\";
}  // namespace ${NAMESPACE}
")
