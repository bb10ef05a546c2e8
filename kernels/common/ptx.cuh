// The PTX instructions behind a tile product: matrix loads, the tensor cores' product, asynchronous
// copies. All exist from sm_80 on. Off the device, emulation/tensor_core.h has the same functions.
#pragma once

#include "device.cuh"

#ifdef __CUDACC__

__device__ __forceinline__ unsigned shared_address(const void *pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// d[4] += a[4]·b[2]: 16×16 times 16×8 in bf16, sums in f32. With g = lane/4 and t = lane%4, a lane's
// d is rows g, g, g+8, g+8 and columns 2t, 2t+1, 2t, 2t+1.
__device__ __forceinline__ void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8×8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8.
template <bool TRANSPOSED>
__device__ __forceinline__ void ldmatrix_x4(uint32_t *registers, const void *row) {
  if (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

// Copies 16 bytes from global to shared memory, or writes zeros where `inside` is false.
__device__ __forceinline__ void copy_async(void *to, const void *from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Until at most PENDING of this thread's groups are still on their way.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

#endif
