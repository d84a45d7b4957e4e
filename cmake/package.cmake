# package.cmake - `make deb`: the Debian packages libhakmem0, libhakmem-dev and hakmem, by CPack (preset deb, so that
# the paths are Debian's).

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hakmem)
set(CPACK_PACKAGE_VENDOR "The HAKMEM authors")
set(CPACK_PACKAGE_CONTACT "The HAKMEM authors <hakmem@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library development)
if(HAKMEM_HAVE_TOOL)
    list(APPEND CPACK_COMPONENTS_ALL tool)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # programs that link with it depend on its package
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package's description has a first line of its own
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libhakmem0)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "malloc for Linux that keeps its books outside the program's memory
libhakmem.so replaces malloc, free and the C++ operators of a program that is linked to it or
started with it preloaded.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/debian/triggers)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libhakmem-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libhakmem0 (= ${PROJECT_VERSION}), libc6-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "malloc for Linux - header, static library, CMake and pkg-config files
Link with -lhakmem, or put hakmem.o anywhere, or libhakmem.a after your objects.")

set(CPACK_DEBIAN_TOOL_PACKAGE_NAME hakmem)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOL_PACKAGE_DEPENDS "libhakmem0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOL_DESCRIPTION "malloc for Linux - the hakmem command
Starts a program under HAKMEM and reports what it allocated.")
include(CPack)
