# `cmake --install`: the library, the command, the public headers and a package, so that
# find_package(heddle) gives heddle::heddle.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)

install(TARGETS heddle EXPORT heddle_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET heddle_cli)
  set_target_properties(heddle_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS heddle_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(folder IN LISTS public_headers)
  install(DIRECTORY ${folder}/heddle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
endforeach()

install(EXPORT heddle_targets NAMESPACE heddle:: FILE heddleConfig.cmake
  DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake DESTINATION ${package_folder})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
