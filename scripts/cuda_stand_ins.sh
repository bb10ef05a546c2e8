#!/usr/bin/env bash
# Static libraries to link with in place of CUDA's shared ones: libcuda, libcublas, libcublasLt, libcurand, libnvrtc.
#
#   scripts/cuda_stand_ins.sh FOLDER
#
# Each function looks itself up in the real library when it is first called and jumps there ever after. A program
# linked with them names no CUDA library, so it starts on a machine without a driver, where the first call returns
# the error code of its library, and one file goes to any machine. x86-64 Linux.
#
# Which functions there are is read from cudarc's bindings, so no wheel of these large libraries is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bindings=$(cargo metadata --locked --all-features --format-version 1 | python3 -c '
import json, pathlib, sys
packages = json.load(sys.stdin)["packages"]
print(next(pathlib.Path(package["manifest_path"]).parent for package in packages if package["name"] == "cudarc"))')/src

# What a call costs after the first: one jump through a slot. Until then the slot leads to a piece of code that keeps
# the registers in which arguments may lie and asks resolve() for the address.
cat >"$work/stand_in.h" <<'EOF_ASM'
.macro stand_in name
  .globl \name
  .type \name, @function
\name:
  jmp *slot_\name(%rip)
first_\name:
  leaq slot_\name(%rip), %r10
  leaq name_\name(%rip), %r11
  jmp look_up
  .size \name, . - \name
  .pushsection .rodata
name_\name:
  .asciz "\name"
  .popsection
  .pushsection .data
  .balign 8
slot_\name:
  .quad first_\name
  .popsection
.endm
.text
look_up:
  pushq %rbp
  movq %rsp, %rbp
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %rax
  pushq %r10
  subq $128, %rsp
  movups %xmm0, 0(%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq %r11, %rdi
  call resolve
  movq %rax, %r11
  movups 0(%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $128, %rsp
  popq %r10
  popq %rax
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rbp
  movq %r11, (%r10)
  jmp *%r11
.section .note.GNU-stack, "", @progbits
.text
EOF_ASM

cat >"$work/resolve.c" <<'EOF_C'
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static int no_library(void) { return MISSING; }
static const char *no_library_text(void) { return LIBRARY " is not on this machine"; }
// The driver's way to say what a code means: a status, and the text where the second argument points.
static int no_library_message(int code, const char **text) {
  (void)code;
  *text = LIBRARY " is not on this machine: is the NVIDIA driver installed?";
  return 0;
}

// The function of this name: the library's, or one that reports that there is none.
__attribute__((used)) static void *resolve(const char *name) {
  static void *library;
  static const char *const files[] = {FILES};
  for (size_t i = 0; library == NULL && i < sizeof files / sizeof *files; ++i)
    library = dlopen(files[i], RTLD_NOW | RTLD_GLOBAL);
  void *function = library == NULL ? NULL : dlsym(library, name);
  if (function != NULL) return function;
  if (strcmp(name, "cuGetErrorString") == 0 || strcmp(name, "cuGetErrorName") == 0) return (void *)no_library_message;
  const size_t length = strlen(name);
  const int text = length > 6 && (strstr(name, "GetStatus") != NULL || strstr(name, "GetErrorString") != NULL);
  return text ? (void *)no_library_text : (void *)no_library;
}
EOF_C

make_library() { # name, module of the bindings, code for a missing library, file names
  local name=$1 module=$2 missing=$3 files
  shift 3
  files=$(printf '"%s", ' "$@")
  {
    echo "#include <stdint.h>"
    echo "#define LIBRARY \"lib$name\""
    echo "#define MISSING $missing"
    echo "#define FILES $files"
    cat "$work/resolve.c"
    echo '__asm__(".include \"'"$work/$name.S"'\"");'
  } >"$work/$name.c"
  {
    cat "$work/stand_in.h"
    grep -ohE 'pub unsafe fn (cu|nvrtc)[A-Za-z0-9_]*' "$bindings/$module/sys/mod.rs" | awk '{ print $4 }' |
      grep -vx culib | sort -u | sed 's/^/stand_in /'
  } >"$work/$name.S"
  "${CC:-gcc}" -O2 -fPIC -Wall -Werror -fno-toplevel-reorder -c "$work/$name.c" -o "$work/$name.o"
  rm -f "$folder/lib$name.a"
  ar rcs "$folder/lib$name.a" "$work/$name.o"
}
# 100 is CUDA_ERROR_NO_DEVICE; 1 and 101 are "not initialised"; 7 is NVRTC's internal error.
make_library cuda driver 100 libcuda.so.1
make_library cublas cublas 1 libcublas.so.13
make_library cublasLt cublaslt 1 libcublasLt.so.13
make_library curand curand 101 libcurand.so.10
make_library nvrtc nvrtc 7 libnvrtc.so.13
