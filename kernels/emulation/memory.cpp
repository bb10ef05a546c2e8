#include "memory.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>

#include <sys/mman.h>
#include <unistd.h>

namespace emulation {
namespace memory {
namespace {

constexpr size_t PAGE = 4096, ALIGNMENT = 256;
// Addresses are reserved once and given out in rising order.
constexpr size_t RESERVED = size_t{16} << 40;
// How many freed allocations describe() remembers.
constexpr size_t REMEMBERED = 65536;
constexpr unsigned char UNSET = 0xff;

struct Allocation {
  size_t bytes;
  unsigned char *pages;
  size_t page_bytes;
};

std::map<uint64_t, Allocation> living;
std::map<uint64_t, size_t> freed;
unsigned char *arena = nullptr;
size_t next = 0, in_use = 0;
void (*report_fault)(const std::string &where) = nullptr;

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The allocation that begins at or before the address.
template <class Map>
auto before(Map &map, uint64_t address) {
  auto found = map.upper_bound(address);
  return found == map.begin() ? map.end() : --found;
}

void fault_handler(int, siginfo_t *info, void *) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const auto first = reinterpret_cast<uint64_t>(arena);
  // Not ours: let it happen again, with what would have happened without us.
  if (address < first || address >= first + RESERVED) {
    std::signal(SIGSEGV, SIG_DFL);
    return;
  }
  if (report_fault) report_fault(describe(address));
  std::_Exit(3);
}

bool reserve() {
  void *address =
      mmap(nullptr, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return false;
  arena = static_cast<unsigned char *>(address);
  struct sigaction action = {};
  action.sa_sigaction = fault_handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  return true;
}

}  // namespace

size_t capacity() {
  static const char *const given = std::getenv("ATPM_EMULATED_MEMORY");
  return given ? std::strtoull(given, nullptr, 10) : size_t{8} << 30;
}

size_t used() { return in_use; }

uint64_t allocate(size_t bytes) {
  if (!arena && !reserve()) return 0;
  const size_t room = rounded(bytes, ALIGNMENT), page_bytes = rounded(room, PAGE);
  if (page_bytes > capacity() - in_use || page_bytes + PAGE > RESERVED - next) return 0;
  unsigned char *pages = arena + next;
  if (mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0) return 0;
  std::memset(pages, UNSET, page_bytes);
  const auto address = reinterpret_cast<uint64_t>(pages + page_bytes - room);
  next += page_bytes + PAGE;
  in_use += page_bytes;
  living[address] = {bytes, pages, page_bytes};
  return address;
}

std::string release(uint64_t address) {
  const auto found = living.find(address);
  if (found == living.end()) return "nothing to free: " + describe(address);
  const Allocation allocation = found->second;
  const auto *end = reinterpret_cast<unsigned char *>(address) + allocation.bytes;
  const auto *pages_end = allocation.pages + allocation.page_bytes;
  std::string problem;
  for (const unsigned char *byte = allocation.pages; byte != pages_end; ++byte) {
    if (byte == reinterpret_cast<unsigned char *>(address)) byte = end;
    if (byte == pages_end) break;
    if (*byte != UNSET) problem = "written outside: " + describe(reinterpret_cast<uint64_t>(byte));
  }
  // A fresh mapping gives the memory back and keeps the addresses.
  mmap(allocation.pages, allocation.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  in_use -= allocation.page_bytes;
  living.erase(found);
  freed[address] = allocation.bytes;
  if (freed.size() > REMEMBERED) freed.erase(freed.begin());
  return problem;
}

bool holds(uint64_t address, size_t bytes) {
  const auto found = before(living, address);
  return found != living.end() && address - found->first <= found->second.bytes &&
         bytes <= found->second.bytes - (address - found->first);
}

std::string describe(uint64_t address) {
  const auto place = [address](uint64_t first, size_t bytes, const char *kind) {
    return "byte " + std::to_string(address - first) + " of " + kind + " of " + std::to_string(bytes) + " bytes";
  };
  const auto was = before(freed, address);
  const auto is = before(living, address);
  const bool freed_is_nearer = was != freed.end() && (is == living.end() || was->first > is->first);
  if (freed_is_nearer && address - was->first < was->second)
    return place(was->first, was->second, "a freed allocation");
  const auto first = reinterpret_cast<uint64_t>(arena);
  if (is == living.end() || address - first >= RESERVED) return "an address that is no device memory";
  if (address - is->first < is->second.bytes + PAGE) return place(is->first, is->second.bytes, "an allocation");
  const auto after = living.upper_bound(address);
  if (after != living.end() && after->first - address <= PAGE)
    return std::to_string(after->first - address) + " bytes before an allocation of " +
           std::to_string(after->second.bytes) + " bytes";
  return "device memory that is not allocated";
}

void on_fault(void (*report)(const std::string &where)) { report_fault = report; }

}  // namespace memory
}  // namespace emulation
