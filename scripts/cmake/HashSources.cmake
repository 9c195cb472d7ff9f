# Writes OUTPUT, in which kEmitterSources of NAMESPACE says what the files SOURCES contain:
# cmake -D OUTPUT=… -D NAMESPACE=… -D SOURCES=… -P HashSources.cmake
set(hashes "")
foreach(source ${SOURCES})
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 32 hash)
file(WRITE ${OUTPUT} "namespace ${NAMESPACE} {
extern const char* const kEmitterSources;
const char* const kEmitterSources = \"${hash}\";
}  // namespace ${NAMESPACE}
")
