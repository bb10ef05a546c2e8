// Device memory of the emulated driver: host memory that makes wrong accesses visible.
//
// Every allocation holds NaN (bytes of ones) until it is written. It ends at a page that cannot be accessed, so that
// a kernel that goes too far stops there; what alignment leaves between end and page, and before the beginning, is
// compared when it is freed. Freed memory cannot be accessed and its addresses are not given out again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulation {
namespace memory {

// The address of fresh memory at the alignment that a driver gives; 0 where there is not enough.
uint64_t allocate(size_t bytes);
// Frees what begins at the address. Empty, or what is wrong: no such allocation, bytes beside it that were written.
std::string release(uint64_t address);
// Whether all these bytes belong to one living allocation.
bool holds(uint64_t address, size_t bytes);
// Where an address lies, in words.
std::string describe(uint64_t address);

size_t capacity();
size_t used();

// Calls this, with a sentence about the address, when something accesses device memory that it may not. The process
// ends after it.
void on_fault(void (*report)(const std::string &where));

}  // namespace memory
}  // namespace emulation
