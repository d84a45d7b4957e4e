# install.cmake - what `make install` and the packages contain.

include(CMakePackageConfigHelpers)

set(hakmem_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)
if(TARGET hakmem)
    install(TARGETS hakmem EXPORT hakmem_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
endif()
if(NOT HAKMEM_SANITIZE)
    install(TARGETS hakmem_static EXPORT hakmem_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    install(FILES ${PROJECT_BINARY_DIR}/hakmem.o DESTINATION ${CMAKE_INSTALL_LIBDIR}/hakmem COMPONENT development)
    install(DIRECTORY include/hakmem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
    install(EXPORT hakmem_targets NAMESPACE hakmem:: DESTINATION ${hakmem_cmake_dir} COMPONENT development)

    configure_package_config_file(packaging/hakmem-config.cmake.in ${PROJECT_BINARY_DIR}/hakmem-config.cmake
        INSTALL_DESTINATION ${hakmem_cmake_dir})
    write_basic_package_version_file(${PROJECT_BINARY_DIR}/hakmem-config-version.cmake
        COMPATIBILITY SameMinorVersion)
    install(FILES ${PROJECT_BINARY_DIR}/hakmem-config.cmake ${PROJECT_BINARY_DIR}/hakmem-config-version.cmake
        DESTINATION ${hakmem_cmake_dir} COMPONENT development)

    file(RELATIVE_PATH prefix_from_pc /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
    configure_file(packaging/hakmem.pc.in ${PROJECT_BINARY_DIR}/hakmem.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/hakmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()
if(HAKMEM_HAVE_TOOL)
    install(PROGRAMS ${PROJECT_BINARY_DIR}/hakmem DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/share/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT tool)
    foreach(shell bash-completion zsh fish)
        install(DIRECTORY ${PROJECT_BINARY_DIR}/share/${shell} DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT tool)
    endforeach()
endif()
foreach(document README.md LICENSE CHANGELOG.md)
    if(EXISTS ${PROJECT_SOURCE_DIR}/${document})
        install(FILES ${document} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
    endif()
endforeach()

include(${PROJECT_SOURCE_DIR}/cmake/package.cmake)
