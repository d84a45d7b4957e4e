/* letters.h - blocks that strangers free one here, one there: their owner is told of each by its address.
 *
 * Blocks of one word are gathered and given back by their bits (heap/mail.c). Where each is of another word, that costs four lines that others
 * write for each block: the owner's word, the strangers', the slab's header, the mailbox. Here a stranger writes the block's
 * address into a line of the owner's heap that few others write, eight blocks to a line, and the owner sets the bits himself.
 *
 * Owns:      the lines (`letter`), and which of them may hold something (`letters`), in each heap.
 * Threads:   strangers put a block where there was none, by CAS; the owner takes each out by an exchange, and so may anyone who gives it back
 *            to its slab (hak_letters_forward()): whoever got it has it. docs/protocols.md, 2; modelled in test/model.
 * Invariant: a block in a letter is clear in its slab's row and counted in its `out`, like one that the program holds: its slab does not end,
 *            and its pages are not returned. Of a line in which something is, the bit in `letters` is set, or who wrote its first block
 *            is about to set it, or somebody is emptying it.
 * Limits:    32 lines a heap, blocks of up to 1 KiB, heaps that are not many (hak_heap_crowd()): 256 KiB at most wait for an owner who does
 *            nothing, and for two rounds of the sweep. Above 1 KiB an owner keeps what he frees, and looks at the strangers' row before he hands
 *            it out again. From the fifth block of a word on between two chores they are gathered; all are where batches are large of late.
 * Measured:  16 threads that exchange blocks, 16 processors, million rounds a second: 76.0 without, 89.0 (docs/experiments.md).
 */
#ifndef HAK_HEAP_LETTERS_H
#define HAK_HEAP_LETTERS_H

#include "heap/heap.h"

/* The stranger's side: a live small block of that heap's slab. False: it is to be gathered. A block that lies there already was freed twice. */
bool hak_letter_put(struct hak_heap *self, struct hak_heap *owner, char *block);
/* The owner frees what others told it of. */
void hak_letters_read(struct hak_heap *heap);
/* Any thread, whose heap `self` is: another heap's letters are given back to the slabs that their blocks are of; all lines are looked at. */
void hak_letters_forward(struct hak_heap *self, struct hak_heap *heap);
/* Before a slab of the heap ends: misuse, if a block of it lies in a letter. */
void hak_letters_slab_ends(struct hak_heap *heap, const struct hak_slab *slab);
/* So many blocks of each class are in letters: census->live is less by them. */
void hak_letters_count(const struct hak_heap *heap, uint64_t live[HAK_CLASS_COUNT]);

#endif
