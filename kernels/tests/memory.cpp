// Device memory of the emulated driver: what it must hold, and the wrong accesses that it must report.
#include "../emulation/memory.cpp"

#include <cmath>

#include <sys/wait.h>

#include "check.h"

namespace memory = emulation::memory;

namespace {

constexpr int REPORTED = 3;  // the exit code of a reported fault

char *bytes_at(uint64_t address) { return reinterpret_cast<char *>(address); }

// The exit code of a child process that writes one byte.
int outcome_of_writing(uint64_t address) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    *const_cast<volatile char *>(bytes_at(address)) = 1;
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void test_contents() {
  for (const size_t bytes : {4, 256, 4092, 4096, 100'000}) {
    const uint64_t address = memory::allocate(bytes);
    check::expect(address % 256 == 0 && address != 0, "an aligned address");
    const auto *numbers = reinterpret_cast<const float *>(address);
    bool unset = true;
    for (size_t i = 0; i < bytes / 4; ++i) unset = unset && std::isnan(numbers[i]);
    check::expect(unset, "fresh memory holds NaN");
    check::expect(memory::holds(address, bytes) && !memory::holds(address, bytes + 1), "it holds its bytes");
    check::expect(outcome_of_writing(address + bytes - 1) == 0, "its last byte can be written");
    check::expect(memory::release(address).empty(), "nothing was written outside");
    check::expect(!memory::holds(address, 1), "freed memory holds nothing");
    check::expect(memory::allocate(bytes) != address, "addresses are not used again");
  }
}

void test_faults() {
  const uint64_t address = memory::allocate(1000);
  check::expect(outcome_of_writing(address + 1024) == REPORTED, "a byte behind an allocation");
  check::expect(outcome_of_writing(address + (1 << 20)) == REPORTED, "a byte far behind it");
  bytes_at(address)[1000] = 1;
  check::expect(memory::release(address).find("byte 1000 of an allocation of 1000") != std::string::npos,
                "a byte of the gap behind it");
  const uint64_t before = memory::allocate(256);
  bytes_at(before)[-1] = 1;
  check::expect(memory::release(before).find("1 bytes before an allocation of 256") != std::string::npos,
                "a byte before it");
  check::expect(outcome_of_writing(before) == REPORTED, "a byte of freed memory");
  check::expect(memory::describe(before + 9).find("byte 9 of a freed allocation of 256") != std::string::npos,
                "freed memory in words");
  check::expect(!memory::release(before).empty() && !memory::release(12345).empty(), "what is not there to be freed");
}

void test_capacity() {
  const size_t used = memory::used();
  check::expect(memory::allocate(memory::capacity() + 1) == 0, "more than there is");
  check::expect(memory::used() == used, "a refusal takes nothing");
}

}  // namespace

int main() {
  test_contents();
  test_faults();
  test_capacity();
  return check::finish("memory");
}
