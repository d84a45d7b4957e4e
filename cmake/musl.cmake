# musl.cmake - build for musl beside glibc, with Debian's musl-tools. There is no C++ library for musl there: operators.cc needs none,
# tests in C++ are left out. A system whose own libc is musl needs no such file.
set(musl ${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-musl)
set(CMAKE_C_COMPILER musl-gcc)
set(CMAKE_CXX_COMPILER g++)
execute_process(COMMAND gcc -print-file-name=include OUTPUT_VARIABLE gcc_include OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(musl_root ${CMAKE_CURRENT_LIST_DIR}/../build/musl-root ABSOLUTE) # made by scripts/setup
set(CMAKE_C_FLAGS_INIT "-isystem ${musl_root}/usr/include") # the kernel's headers
set(CMAKE_CXX_FLAGS_INIT "-nostdinc -nostdinc++ -isystem /usr/include/${musl} -isystem ${gcc_include}")
set(CMAKE_CXX_ABI_COMPILED TRUE) # not asked, or g++'s own libraries would be put on each link line
# What gcc asks of the linker itself and musl-gcc's specs leave out: stacks cannot be walked without the tables' index.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,--eh-frame-hdr,--build-id)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,--eh-frame-hdr,--build-id)
set(CMAKE_FIND_ROOT_PATH ${musl_root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
