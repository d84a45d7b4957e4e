# library.cmake - the objects of src/, and the library in its three forms.

include(CheckSymbolExists)
file(GLOB_RECURSE hakmem_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c ${PROJECT_SOURCE_DIR}/src/*.cc)
set(hakmem_shared_source # in libhakmem.so alone
    ${PROJECT_SOURCE_DIR}/src/front/dlopen.c ${PROJECT_SOURCE_DIR}/src/front/jemallocx.c)
list(REMOVE_ITEM hakmem_sources ${hakmem_shared_source})
# What only glibc has: its further functions of <malloc.h>, and dlopen with RTLD_DEEPBIND.
check_symbol_exists(__GLIBC__ features.h HAKMEM_GLIBC)
if(NOT HAKMEM_GLIBC)
    list(REMOVE_ITEM hakmem_sources ${PROJECT_SOURCE_DIR}/src/front/glibc.c)
    list(REMOVE_ITEM hakmem_shared_source ${PROJECT_SOURCE_DIR}/src/front/dlopen.c)
endif()
if(NOT hakmem_sources)
    file(WRITE ${PROJECT_BINARY_DIR}/empty.c "extern int hak_empty;\nint hak_empty;\n")
    set(hakmem_sources ${PROJECT_BINARY_DIR}/empty.c)
endif()

# -fno-exceptions with unwind tables: nothing here catches or cleans up, so no personality routine (and so
# no libstdc++) is needed, yet an exception thrown by a new-handler passes through our frames.
set(hakmem_flags
    -Wall -Wextra -Wpointer-arith -Wundef -Wvla
    -ffunction-sections -fdata-sections # packaging/hakmem.lds orders them
    -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-semantic-interposition -fno-plt
    -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
    -fno-strict-aliasing -fno-math-errno
    -fasynchronous-unwind-tables
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes$<SEMICOLON>-Wmissing-prototypes>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions$<SEMICOLON>-fno-rtti$<SEMICOLON>-fno-threadsafe-statics>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-attribute-alias> # operators that ignore their last argument
    $<$<C_COMPILER_ID:Clang>:-Wno-bitwise-instead-of-logical$<SEMICOLON>-Wno-unknown-attributes>
    $<$<BOOL:${HAKMEM_WERROR}>:-Werror>)
# (clang: a | that saves a branch is meant, and gcc's attribute `copy` is unknown to it.)
# The debug checks must not change what a release does; the release must not carry them.
# -foptimize-sibling-calls: malloc leaves to its slow path by a jump, where the caller is found by the return address.
set(hakmem_debug_flags -DHAK_DEBUG -O1 -g -fno-omit-frame-pointer -foptimize-sibling-calls)

function(hakmem_objects target)
    add_library(${target} OBJECT ${hakmem_sources})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_compile_options(${target} PRIVATE ${hakmem_flags} ${ARGN})
endfunction()

# Types of what is exported: gdb calls the malloc it finds to place a string for a function that is called by hand, and needs to know its type.
file(GLOB hakmem_exporters CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/front/*.c)
set_source_files_properties(${hakmem_exporters} PROPERTIES COMPILE_OPTIONS -g2)

set(HAKMEM_PRODUCTS)
set(hakmem_sanitize_flags)
if(HAKMEM_SANITIZE)
    # A left shift of a negative number is defined by gcc and clang, and used.
    set(hakmem_sanitize_flags -fsanitize=${HAKMEM_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=shift-base
        -fno-omit-frame-pointer)
endif()

if(HAKMEM_DEBUG)
    hakmem_objects(hakmem_objects ${hakmem_debug_flags} ${hakmem_sanitize_flags})
else()
    hakmem_objects(hakmem_objects ${hakmem_sanitize_flags})
endif()

# --- libhakmem.so -------------------------------------------------------------------------------
# -Bsymbolic-functions: our own calls bind here; -z nodelete: threads keep our exit hooks, so a dlclose must
# not take the code away; --hash-style=gnu: one symbol table less to load. Programs look symbols up in
# every library, so exported names are kept to packaging/hakmem.map and are unversioned: the loader
# would refuse our malloc@HAKMEM for a program that asks for malloc@GLIBC.
if(HAKMEM_SHARED AND NOT HAKMEM_SANITIZE)
    set(map ${PROJECT_SOURCE_DIR}/packaging/hakmem.map)
    set(order ${PROJECT_SOURCE_DIR}/packaging/hakmem.lds)
    add_library(hakmem SHARED $<TARGET_OBJECTS:hakmem_objects> ${hakmem_shared_source})
    target_compile_options(hakmem PRIVATE ${hakmem_flags} $<$<BOOL:${HAKMEM_DEBUG}>:${hakmem_debug_flags}>)
    target_include_directories(hakmem PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_include_directories(hakmem INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    set_target_properties(hakmem PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE C LINK_DEPENDS "${map};${order}"
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_link_options(hakmem PRIVATE
        -Wl,--version-script=${map} -Wl,-T,${order} -Wl,-Bsymbolic-functions -Wl,-z,nodelete -Wl,--hash-style=gnu
        -Wl,-z,relro -Wl,-z,now -Wl,-z,noseparate-code -Wl,-z,max-page-size=65536 -Wl,-O1 -Wl,--no-undefined -Wl,--as-needed)
    # ... but for those of which a program may have its own, which the others then call (src/front/operators.cc, realloc.c). Such a list
    # is all that stays unbound: so the variables are in it, too, of which a program's references may make copies.
    foreach(unbound realloc _Znwm _Znam _ZnwmSt11align_val_t _ZnamSt11align_val_t _ZdlPv _ZdaPv _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t
            hakmem_published hak_learn_shown __malloc_hook __realloc_hook __free_hook __memalign_hook __malloc_initialize_hook
            __after_morecore_hook)
        target_link_options(hakmem PRIVATE -Wl,--export-dynamic-symbol=${unbound})
    endforeach()
    target_link_libraries(hakmem PRIVATE Threads::Threads)
    add_library(hakmem::hakmem ALIAS hakmem)
    list(APPEND HAKMEM_PRODUCTS hakmem)
endif()

# --- hakmem.o and libhakmem.a -------------------------------------------------------------------
# One relocatable object: were the archive to hold many, a program that names only malloc and free would get
# memalign from libc, and its blocks would meet our free. What is hidden becomes local to the object.
set(combined ${PROJECT_BINARY_DIR}/hakmem.o)
set(code ${PROJECT_SOURCE_DIR}/packaging/combined.lds)
if(HAKMEM_SANITIZE)
    # The sanitizers' runtime owns malloc in the process; ours stand beside it under names of their own,
    # and test/support/renamed.h gives the tests those names.
    set(renamed ${PROJECT_SOURCE_DIR}/cmake/renamed.syms)
    set(after_combine COMMAND ${CMAKE_OBJCOPY} --redefine-syms=${renamed} ${combined})
else()
    set(renamed)
    # Code in a section of its own name: the linker gives its bounds (src/watch/stack.c).
    set(after_combine COMMAND ${CMAKE_OBJCOPY} --localize-hidden --rename-section .text=hakmem_text ${combined})
endif()
add_custom_command(OUTPUT ${combined}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -Wl,-T,${code} -o ${combined} $<TARGET_OBJECTS:hakmem_objects>
    ${after_combine}
    DEPENDS hakmem_objects $<TARGET_OBJECTS:hakmem_objects> ${renamed} ${code}
    COMMAND_EXPAND_LISTS VERBATIM COMMENT "Combining hakmem.o")
set_source_files_properties(${combined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_custom_target(hakmem_combined DEPENDS ${combined})
add_library(hakmem_static STATIC ${combined})
add_dependencies(hakmem_static hakmem_combined)
set_target_properties(hakmem_static PROPERTIES
    OUTPUT_NAME hakmem EXPORT_NAME static LINKER_LANGUAGE C ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_include_directories(hakmem_static INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(hakmem_static INTERFACE Threads::Threads)
# A plugin that takes it in stays: threads that used it keep its exit hook (-z nodelete of the shared library).
target_link_options(hakmem_static INTERFACE
    $<$<IN_LIST:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY;MODULE_LIBRARY>:LINKER:-z,nodelete>)
add_library(hakmem::static ALIAS hakmem_static)
list(APPEND HAKMEM_PRODUCTS hakmem_static)

# --- for unit and fault tests: every room visible, every check in ----------------------------------
# An ordinary archive: a test of one room takes that room and what it stands on, not the front.
if(HAKMEM_TESTS)
    if(HAKMEM_DEBUG)
        add_library(hakmem_checked STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:hakmem_objects>)
    else()
        hakmem_objects(hakmem_checked_objects ${hakmem_debug_flags} ${hakmem_sanitize_flags})
        set_target_properties(hakmem_checked_objects PROPERTIES EXCLUDE_FROM_ALL ON)
        add_library(hakmem_checked STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:hakmem_checked_objects>)
    endif()
    target_include_directories(hakmem_checked INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(hakmem_checked INTERFACE HAK_DEBUG _GNU_SOURCE)
    set_target_properties(hakmem_checked PROPERTIES LINKER_LANGUAGE C)
    if(HAKMEM_SANITIZE)
        add_custom_command(TARGET hakmem_checked POST_BUILD
            COMMAND ${CMAKE_OBJCOPY} --redefine-syms=${renamed} $<TARGET_FILE:hakmem_checked>)
    endif()
    target_link_libraries(hakmem_checked INTERFACE Threads::Threads)
endif()
