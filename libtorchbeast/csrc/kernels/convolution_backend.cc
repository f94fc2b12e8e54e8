#include "kernels/convolution_backend.h"

namespace torchbeast {

#if TB_HAS_AVX512_BF16

const ConvolutionBackend& ConvolutionBackend::Best() {
  RequireAvx512Bf16();
  return Amx() ? *Amx() : *Avx512();
}

#endif

}  // namespace torchbeast
