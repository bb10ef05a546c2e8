// The scheduler: fibers, their stacks, and the switch between them. x86-64, System V calling convention.
#include "emulation.h"

#include <memory>
#include <random>

#if !defined(__x86_64__)
#error "the switch between fibers is written for x86-64"
#endif

// void emulation_switch(void **save, void *resume): keeps what the calling convention says a function
// must keep on the stack, stores the stack pointer, and goes on where the other stack stopped.
extern "C" void emulation_switch(void **save, void *resume);
asm(R"(
.text
.globl emulation_switch
.type emulation_switch, @function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulation_switch, .-emulation_switch
)");

namespace emulation {

Schedule schedule;
Block block;
Thread *current = nullptr;

namespace {

constexpr size_t STACK_BYTES = 128 * 1024;

// Bytes behind the shared memory that must stay as they are: more than a block can have, so that a launch that asks for
// too little, or for none, writes here. Under AddressSanitizer there are none: it reports a step outside where it happens.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t CANARY_BYTES = 0;
#else
constexpr size_t CANARY_BYTES = 164 * 1024;
#endif
// NaN as f32 and as bf16: what shared memory and the canary hold until something is written.
constexpr unsigned char UNSET = 0xff;

void *scheduler_stack = nullptr;
const std::function<void()> *kernel = nullptr;
std::mt19937 order;

void fiber_main() {
  (*kernel)();
  current->state = Thread::DONE;
  --block.running;
  emulation_switch(&current->stack_pointer, scheduler_stack);
  std::abort();  // a finished thread is never resumed
}

// Lays out a stack so that the first switch to it enters fiber_main with the alignment that a call
// instruction would have left.
void *fresh_stack(char *stack) {
  auto *top = reinterpret_cast<void **>(stack + STACK_BYTES);
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(fiber_main);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  return top;
}

void report_waiting() {
  for (const Thread &thread : block.threads)
    if (thread.state == Thread::WAITING) {
      fault("threads wait for others that never come; the first waits", thread.place);
    }
}

void run_block(char *stacks) {
  const unsigned threads = block.threads.size();
  block.running = threads;
  block.at_barrier = 0;
  block.ready.clear();
  for (Warp &warp : block.warps) warp = Warp();
  for (unsigned i = 0; i < threads; ++i) {
    Thread &thread = block.threads[i];
    thread.stack_pointer = fresh_stack(stacks + i * STACK_BYTES);
    thread.copies.clear();
    thread.copy_group = 0;
    make_ready(thread);
  }
  while (!block.ready.empty()) {
    std::swap(block.ready[order() % block.ready.size()], block.ready.back());
    current = block.ready.back();
    block.ready.pop_back();
    emulation_switch(&scheduler_stack, current->stack_pointer);
  }
  if (block.running != 0) report_waiting();
}

bool is_intact(const unsigned char *canary) {
  // The first byte, and every other like the one before it.
  return CANARY_BYTES == 0 || (canary[0] == UNSET && std::memcmp(canary, canary + 1, CANARY_BYTES - 1) == 0);
}

}  // namespace

void make_ready(Thread &thread) {
  thread.state = Thread::READY;
  block.ready.push_back(&thread);
}

void wait_at(const char *place) {
  current->state = Thread::WAITING;
  current->place = place;
  emulation_switch(&current->stack_pointer, scheduler_stack);
}

void fault(const char *what, const char *place) {
  const long thread = current ? current - block.threads.data() : 0;
  std::fprintf(stderr, "emulation: %s at %s (block %u,%u,%u thread %ld)\n", what, place, block.index.x, block.index.y,
               block.index.z, thread);
  std::fflush(nullptr);
  std::_Exit(3);  // no destructors: the stack is a fiber's
}

void barrier(const char *place) {
  if (current->warp->arrived != 0) fault("a barrier while lanes of the warp wait in a collective", place);
  if (block.running != block.threads.size()) fault("a barrier after a thread has returned", place);
  if (block.at_barrier == 0) block.barrier_place = place;
  if (std::strcmp(block.barrier_place, place) != 0) fault("threads of a block are at different barriers", place);
  if (++block.at_barrier < block.threads.size()) return wait_at(place);
  block.at_barrier = 0;
  for (Thread &other : block.threads)
    if (&other != current) make_ready(other);
}

void launch(dim3 grid, dim3 block_size, size_t shared_bytes, const std::function<void()> &body) {
  const unsigned threads = block_size.x * block_size.y * block_size.z;
  if (threads == 0 || threads > 1024) fault("a block has 1 to 1024 threads", "launch");
  if (threads % LANES != 0) fault("kernels here use whole warps", "launch");
  if (grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffffu) fault("the grid is too large", "launch");
  static std::vector<char> stacks;
  if (stacks.size() < threads * STACK_BYTES) stacks.resize(threads * STACK_BYTES);
  // Aligned as on a GPU.
  void *memory = nullptr;
  const size_t all_bytes = shared_bytes + CANARY_BYTES;
  if (posix_memalign(&memory, 128, all_bytes == 0 ? 1 : all_bytes) != 0) fault("no memory", "launch");
  std::unique_ptr<void, void (*)(void *)> shared(memory, std::free);
  std::memset(memory, UNSET, all_bytes);

  order.seed(schedule.seed);
  kernel = &body;
  block.size = block_size;
  block.grid = grid;
  block.shared = static_cast<unsigned char *>(memory);
  block.shared_bytes = shared_bytes;
  block.threads.assign(threads, Thread());
  block.warps.assign(threads / LANES, Warp());
  for (unsigned i = 0; i < threads; ++i) {
    Thread &thread = block.threads[i];
    thread.index = {i % block_size.x, i / block_size.x % block_size.y, i / block_size.x / block_size.y};
    thread.lane = i % LANES;
    thread.warp = &block.warps[i / LANES];
  }
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block.index = {x, y, z};
        std::memset(block.shared, UNSET, shared_bytes);
        run_block(stacks.data());
      }
  current = nullptr;
  if (!is_intact(block.shared + shared_bytes))
    fault("a kernel wrote past the shared memory that it was launched with", "launch");
}

}  // namespace emulation
