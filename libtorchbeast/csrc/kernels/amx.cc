#include "kernels/amx.h"

#if TB_HAS_AMX

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace torchbeast {

namespace {

// From Linux's interface (arch/x86/include/uapi/asm/prctl.h).
constexpr long kRequestPermission = 0x1023;
constexpr long kTileData = 18;

// Not __builtin_cpu_supports: some compilers do not know AMX there.
bool ProcessorHasAmx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  return (d & kAmxBf16) != 0 && (d & kAmxTile) != 0;
}

bool FindAmx() {
  // The permission is of the whole process, threads that exist already included.
  return HasAvx512Bf16() && ProcessorHasAmx() &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool HasAmx() {
  static const bool has_amx = FindAmx();
  return has_amx;
}

}  // namespace torchbeast

#endif
