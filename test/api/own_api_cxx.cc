/* own_api_cxx.cc - hakmem.h in C++: it compiles, and its macro names one site per expansion. */
#include "expect.h"

#include <hakmem/hakmem.h>

static hak_site_t site_here() { return HAK_SITE; }

static void a_site_is_one_per_expansion()
{
    hak_site_t other = HAK_SITE;
    EXPECT(other != 0 && site_here() != 0);
    EXPECT(site_here() == site_here());
    EXPECT(site_here() != other);
}

static void blocks_of_a_site_are_counted()
{
    struct hak_site_stats rows[8];
    void *block = hak_alloc_at(100, site_here());
    EXPECT(block != nullptr);
    size_t count = hak_site_stats(rows, 8);
    bool found = false;
    for (size_t i = 0; i < count && i < 8; i++)
        if (rows[i].site == site_here()) found = rows[i].alloc_count == 1 && rows[i].alloc_bytes >= 100;
    EXPECT(found);
    hak_free_at(block, site_here());
}

int main()
{
    RUN(a_site_is_one_per_expansion);
    RUN(blocks_of_a_site_are_counted);
    return EXPECT_RESULT();
}
