#include <algorithm>

#include "kernels/amx.h"
#include "kernels/convolution_backend.h"

#if TB_HAS_AVX512

namespace torchbeast {

#if TB_HAS_AMX

namespace {

// Four tiles of sums are in the first four registers. The registers' numbers must be literals: the
// compiler puts them into the instruction's text.
AMX inline void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

AMX inline void StoreSums(float* sums) {
  _tile_stored(0, sums, kTileBytes);
  _tile_stored(1, sums + kMatrixFloats, kTileBytes);
  _tile_stored(2, sums + 2 * kMatrixFloats, kTileBytes);
  _tile_stored(3, sums + 3 * kMatrixFloats, kTileBytes);
}

// The inputs of the first position: those that a step multiplies.
inline const uint16_t* InputsOf(const ConvolutionProducts& products, const uint16_t* inputs,
                                int64_t step) {
  const int64_t y = step / products.steps();
  return inputs + y * products.pitch * products.inputs + step % products.steps() * kVectorBfloats;
}

// Whether there are fewer numbers than a tile has columns.
inline bool IsShort(const ConvolutionProducts& products, int64_t step) {
  return (step % products.steps() + 1) * kTileRows > products.pairs();
}

// Sums at 64 positions.
AMX void SumTo16Outputs(const ConvolutionProducts& products, const uint16_t* inputs, float* sums) {
  const int64_t stride = 2 * products.inputs, next = kTileRows * products.inputs;
  const uint16_t* weights = products.weights;
  ZeroSums();
  for (int64_t step = 0; step < kFilterSide * products.steps(); ++step) {
    const uint16_t* first = InputsOf(products, inputs, step);
    if (IsShort(products, step)) {
      _tile_loadd(7, weights, kTileBytes);
      _tile_loadd(6, first, stride);
      _tile_dpbf16ps(0, 6, 7);
      _tile_loadd(6, first + next, stride);
      _tile_dpbf16ps(1, 6, 7);
      _tile_loadd(6, first + 2 * next, stride);
      _tile_dpbf16ps(2, 6, 7);
      _tile_loadd(6, first + 3 * next, stride);
      _tile_dpbf16ps(3, 6, 7);
    } else {
      _tile_loadd(5, weights, kTileBytes);
      _tile_loadd(4, first, stride);
      _tile_dpbf16ps(0, 4, 5);
      _tile_loadd(4, first + next, stride);
      _tile_dpbf16ps(1, 4, 5);
      _tile_loadd(4, first + 2 * next, stride);
      _tile_dpbf16ps(2, 4, 5);
      _tile_loadd(4, first + 3 * next, stride);
      _tile_dpbf16ps(3, 4, 5);
    }
    weights += kMatrixBfloats;
  }
  StoreSums(sums);
}

// Sums at 32 positions.
AMX void SumTo32Outputs(const ConvolutionProducts& products, const uint16_t* inputs, float* sums) {
  const int64_t stride = 2 * products.inputs, next = kTileRows * products.inputs;
  const uint16_t* weights = products.weights;
  ZeroSums();
  for (int64_t step = 0; step < kFilterSide * products.steps(); ++step) {
    const uint16_t* first = InputsOf(products, inputs, step);
    // No register is left for tiles of another shape: those of short steps end with weights of 0.
    // So numbers that are not finite spread one column further.
    _tile_loadd(6, weights, kTileBytes);
    _tile_loadd(7, weights + kMatrixBfloats, kTileBytes);
    _tile_loadd(4, first, stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, first + next, stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    weights += 2 * kMatrixBfloats;
  }
  // A position's sums for both groups lie side by side.
  _tile_stored(0, sums, 2 * kTileBytes);
  _tile_stored(1, sums + kVectorFloats, 2 * kTileBytes);
  _tile_stored(2, sums + 2 * kMatrixFloats, 2 * kTileBytes);
  _tile_stored(3, sums + 2 * kMatrixFloats + kVectorFloats, 2 * kTileBytes);
}

// Three tiles of sums: of a filter's three neighbouring inputs, or with 4 inputs of its three rows.
AMX void AddTo16Outputs(const FilterGradientProducts& products) {
  const bool is_frames = products.inputs == kFrames;
  const int64_t stride = 2 * products.stride;
  for (int64_t pass = 0; pass < (is_frames ? 1 : kFilterSide); ++pass) {
    const uint16_t* inputs = products.transposed + pass * products.pitch;
    const int64_t next = is_frames ? products.pitch : 1;
    float* sums = products.sums + pass * kFilterSide * kMatrixFloats;
    _tile_loadd(0, sums, kTileBytes);
    _tile_loadd(1, sums + kMatrixFloats, kTileBytes);
    _tile_loadd(2, sums + 2 * kMatrixFloats, kTileBytes);
    for (int64_t position = 0; position < products.positions; position += kVectorBfloats) {
      _tile_loadd(7, products.gradients + position * kGroup, kTileBytes);
      _tile_loadd(4, inputs + position, stride);
      _tile_dpbf16ps(0, 4, 7);
      _tile_loadd(5, inputs + position + next, stride);
      _tile_dpbf16ps(1, 5, 7);
      _tile_loadd(6, inputs + position + 2 * next, stride);
      _tile_dpbf16ps(2, 6, 7);
    }
    _tile_stored(0, sums, kTileBytes);
    _tile_stored(1, sums + kMatrixFloats, kTileBytes);
    _tile_stored(2, sums + 2 * kMatrixFloats, kTileBytes);
  }
}

// Four tiles of sums: two groups of outputs by two of inputs, or by two taps with 16 inputs. With
// 16 inputs the last pair has only one tap; the sums of its second half are not read.
AMX void AddTo32Outputs(const FilterGradientProducts& products) {
  const bool is_wide = products.inputs > kGroup;
  const int64_t stride = 2 * products.stride;
  const auto at = [&](int64_t tap) {
    tap = std::min(tap, kTaps - 1);
    return products.transposed + tap / kFilterSide * products.pitch + tap % kFilterSide;
  };
  for (int64_t tap = 0; tap < kTaps; tap += is_wide ? 1 : 2) {
    const uint16_t* first = at(tap);
    const uint16_t* second = is_wide ? first + kGroup * products.stride : at(tap + 1);
    float* sums = products.sums + tap * (is_wide ? 4 : 2) * kMatrixFloats;
    _tile_loadd(0, sums, kTileBytes);
    _tile_loadd(1, sums + kMatrixFloats, kTileBytes);
    _tile_loadd(2, sums + 2 * kMatrixFloats, kTileBytes);
    _tile_loadd(3, sums + 3 * kMatrixFloats, kTileBytes);
    for (int64_t position = 0; position < products.positions; position += kVectorBfloats) {
      const uint16_t* gradients = products.gradients + position * 2 * kGroup;
      _tile_loadd(6, gradients, 2 * kTileBytes);
      _tile_loadd(7, gradients + kVectorBfloats, 2 * kTileBytes);
      _tile_loadd(4, first + position, stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, second + position, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    StoreSums(sums);
  }
}

// Four tiles of sums keep the processor busy: of 64 positions, or of 32 and two groups of outputs.
class AmxBackend : public ConvolutionBackend {
 public:
  void Convolve(const ConvolutionProducts& products, const uint16_t* inputs, int64_t positions,
                const TakeSums& take) const override {
    const bool is_one_group = products.outputs == kGroup;
    TileShapes shapes = WholeTiles();
    if (is_one_group) {
      // The short steps' own registers.
      const int pairs = static_cast<int>(products.pairs() - (products.steps() - 1) * kTileRows);
      shapes.Set(6, kTileRows, 2 * 2 * pairs);
      shapes.Set(7, pairs, kTileBytes);
    }
    const TileScope tiles(shapes);
    const int64_t at_once = kPositionsAtOnce / products.outputs * kGroup;
    alignas(64) float sums[4 * kMatrixFloats];
    for (int64_t position = 0; position < positions; position += at_once) {
      const uint16_t* first = inputs + position * products.inputs;
      if (is_one_group) {
        SumTo16Outputs(products, first, sums);
      } else {
        SumTo32Outputs(products, first, sums);
      }
      take(sums, position, at_once);
    }
  }

  void AddFilterGradients(const FilterGradientProducts& products) const override {
    TileShapes shapes = WholeTiles();
    if (products.inputs == kFrames) {
      for (const int tile : {0, 1, 2, 4, 5, 6}) {
        shapes.Set(tile, static_cast<int>(kFilterSide * kFrames), kTileBytes);
      }
    }
    const TileScope tiles(shapes);
    if (products.outputs == kGroup) {
      AddTo16Outputs(products);
    } else {
      AddTo32Outputs(products);
    }
  }

 private:
  static TileShapes WholeTiles() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileRows, kTileBytes);
    return shapes;
  }
};

}  // namespace

const ConvolutionBackend* ConvolutionBackend::Amx() {
  static const AmxBackend backend;
  return HasAmx() ? &backend : nullptr;
}

#else

const ConvolutionBackend* ConvolutionBackend::Amx() { return nullptr; }

#endif

}  // namespace torchbeast

#endif
