#include "convolution.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#if TB_HAS_AMX

namespace torchbeast {

namespace {

constexpr int64_t kFilterSide = 3;
constexpr int64_t kTaps = kFilterSide * kFilterSide;
// Numbers in a whole tile.
constexpr int64_t kFloatsOfTile = kTileRows * kTileFloats;
constexpr int64_t kBfloatsOfTile = kTileRows * kTileBfloats;
// Channels of the network's input: the frames. Three neighbours have 12 numbers and share a tile.
constexpr int64_t kFrames = 4;

int64_t RoundUp(int64_t number, int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

float ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float number;
  std::memcpy(&number, &wide, sizeof number);
  return number;
}

// `size` is a multiple of 16.
AMX Bfloats Round(const float* numbers, int64_t size) {
  Bfloats rounded = MakeZeros(size);
  for (int64_t i = 0; i < size; i += kTileFloats) {
    Floats sixteen;
    Load(numbers + i, sixteen);
    StoreRounded(sixteen, rounded.get() + i);
  }
  return rounded;
}

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
  _tile_stored(1, sums + kFloatsOfTile, kTileBytes);
  _tile_stored(2, sums + 2 * kFloatsOfTile, kTileBytes);
  _tile_stored(3, sums + 3 * kFloatsOfTile, kTileBytes);
}

// Zeros for negative numbers. As integers these are smaller than NaN of negative sign, which stays.
AMX inline __m512i ToPositive(const __m512i& bits) {
  return _mm512_maskz_mov_epi16(_mm512_cmpgt_epi16_mask(bits, _mm512_set1_epi16(-128)), bits);
}

AMX void CopyPositive(const uint16_t* source, uint16_t* target, int64_t size) {
  int64_t i = 0;
  for (; i + kTileBfloats <= size; i += kTileBfloats) {
    _mm512_storeu_si512(target + i, ToPositive(_mm512_loadu_si512(source + i)));
  }
  const __mmask32 rest = (1u << (size - i)) - 1;
  const __m512i numbers = _mm512_maskz_loadu_epi16(rest, source + i);
  _mm512_mask_storeu_epi16(target + i, rest, ToPositive(numbers));
}

// 16 numbers each of two pixels.
AMX inline void LoadTwo(const uint16_t* first, const uint16_t* second, __m512i& result) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  result = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Writes 16 channels of 32 positions as 16 rows of 32 positions.
AMX void Transpose16(const uint16_t* source, int64_t channels, uint16_t* target, int64_t stride) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) {
    LoadTwo(source + i * channels, source + (16 + i) * channels, a[i]);
  }
  // Each step joins two neighbours: pairs, fours and eights of positions, in each quarter of a
  // vector. The first two quarters have positions 0 to 15.
  for (int i = 0; i < 8; ++i) {
    b[2 * i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    for (int half = 0; half < 2; ++half) {
      const __m512i low = b[4 * i + half], high = b[4 * i + 2 + half];
      a[4 * i + 2 * half] = _mm512_unpacklo_epi32(low, high);
      a[4 * i + 2 * half + 1] = _mm512_unpackhi_epi32(low, high);
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      const __m512i low = a[8 * i + j], high = a[8 * i + 4 + j];
      b[8 * i + 2 * j] = _mm512_unpacklo_epi64(low, high);
      b[8 * i + 2 * j + 1] = _mm512_unpackhi_epi64(low, high);
    }
  }
  // b[8 * i + c]: positions 8 * i to 8 * i + 7, of channel c in quarters 0 and 2, of c + 8 in the
  // others.
  const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int c = 0; c < 8; ++c) {
    _mm512_storeu_si512(target + c * stride, _mm512_permutex2var_epi64(b[c], even, b[8 + c]));
    _mm512_storeu_si512(target + (c + 8) * stride, _mm512_permutex2var_epi64(b[c], odd, b[8 + c]));
  }
}

// Writes 4 channels of 32 positions as 4 rows of 32 positions; then the same one position earlier,
// as the 4 rows below, and two positions earlier.
AMX void Transpose4(const uint16_t* source, uint16_t* target, int64_t stride) {
  __m512i quarters[4];
  for (int i = 0; i < 4; ++i) quarters[i] = _mm512_loadu_si512(source + i * kTileBfloats);
  alignas(64) uint16_t every_fourth[kTileBfloats];
  for (int i = 0; i < kTileBfloats; ++i) every_fourth[i] = static_cast<uint16_t>(i * kFrames);
  const __m512i first = _mm512_load_si512(every_fourth);
  for (int c = 0; c < kFrames; ++c) {
    const __m512i places = _mm512_add_epi16(first, _mm512_set1_epi16(static_cast<int16_t>(c)));
    // A place of 64 or more wraps round; only the first 16 results of each are taken.
    const __m512i low = _mm512_permutex2var_epi16(quarters[0], places, quarters[1]);
    const __m512i high = _mm512_permutex2var_epi16(quarters[2], places, quarters[3]);
    const __m512i row = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    for (int64_t x = 0; x < kFilterSide; ++x) {
      _mm512_storeu_si512(target + (x * kFrames + c) * stride - x, row);
    }
  }
}

}  // namespace

Bfloats MakeZeros(int64_t size) {
  const size_t bytes = sizeof(uint16_t) * static_cast<size_t>(size);
  auto* numbers = static_cast<uint16_t*>(::operator new[](bytes, FreeAligned::kAlignment));
  std::memset(numbers, 0, bytes);
  return Bfloats(numbers);
}

BorderedPicture::BorderedPicture(int64_t height, int64_t width, int64_t channels, int64_t extra)
    : height_(height),
      width_(width),
      channels_(channels),
      numbers_(MakeZeros(((height + 2) * pitch() + 1 + extra) * channels)) {}

void BorderedPicture::Fill(const uint16_t* picture, bool relu) {
  const int64_t row_size = width_ * channels_;
  for (int64_t row = 0; row < height_; ++row) {
    const uint16_t* source = picture + row * row_size;
    uint16_t* target = numbers_.get() + ((row + 1) * pitch() + 1) * channels_;
    if (relu) {
      CopyPositive(source, target, row_size);
    } else {
      std::memcpy(target, source, sizeof(uint16_t) * static_cast<size_t>(row_size));
    }
  }
}

Convolution::Convolution(const Filters& filters, const ConvolutionShape& shape)
    : Convolution(filters.weight, filters.bias, shape, false) {}

Convolution Convolution::ForInputGradients(const Filters& filters, const ConvolutionShape& shape) {
  return Convolution(filters.weight, nullptr,
                     {shape.height, shape.width, shape.outputs, shape.inputs}, true);
}

// Four tiles of sums keep the processor busy: of 64 positions, or of 32 and two groups of outputs.
Convolution::Convolution(const float* weight, const float* bias, const ConvolutionShape& shape,
                         bool for_gradients)
    : shape_(shape),
      positions_at_once_(shape.outputs == kTileFloats ? 4 * kTileRows : 2 * kTileRows),
      picture_(shape.height, shape.width, shape.inputs, positions_at_once_ + 1),
      bias_(static_cast<size_t>(shape.outputs)),
      pixels_(static_cast<size_t>(RoundUp(picture_.size(), positions_at_once_)), -1) {
  if (bias) {
    // As the weights are, so that an agent whose parameters are bfloat16 already computes the same.
    const Bfloats rounded = Round(bias, shape.outputs);
    std::transform(rounded.get(), rounded.get() + shape.outputs, bias_.begin(), ToFloat);
  }
  for (int64_t row = 0; row < shape.height; ++row) {
    for (int64_t column = 0; column < shape.width; ++column) {
      pixels_[static_cast<size_t>(row * picture_.pitch() + column)] =
          static_cast<int32_t>(row * shape.width + column);
    }
  }
  Pack(weight, for_gradients);
}

void Convolution::Pack(const float* weight, bool for_gradients) {
  const int64_t inputs = shape_.inputs, outputs = shape_.outputs;
  // Neighbouring inputs that fit into a row of a tile.
  const int64_t taps = std::min<int64_t>(kFilterSide, kTileBfloats / inputs);
  for (int64_t y = 0; y < kFilterSide; ++y) {
    for (int64_t x = 0; x < kFilterSide; x += taps) {
      const bool is_short = std::min(taps, kFilterSide - x) * inputs < kTileBfloats;
      steps_.push_back({(y * picture_.pitch() + x) * inputs, is_short});
    }
  }
  const int64_t steps_per_row = static_cast<int64_t>(steps_.size()) / kFilterSide;
  weights_ = MakeZeros(static_cast<int64_t>(steps_.size()) * outputs * kTileBfloats);
  const Bfloats rounded = Round(weight, kTaps * inputs * outputs);
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    const int64_t x = tap % kFilterSide;
    const int64_t step = tap / kFilterSide * steps_per_row + x / taps;
    for (int64_t o = 0; o < outputs; o += kTileFloats) {
      const int64_t tile = (step * outputs + o) / kTileFloats;
      for (int64_t c = 0; c < inputs; ++c) {
        const int64_t k = x % taps * inputs + c;
        uint16_t* target = weights_.get() + tile * kBfloatsOfTile + k / 2 * kTileBfloats + k % 2;
        // The filter of a gradient: inputs and outputs change places, and it is turned round.
        const uint16_t* source =
            rounded.get() + (for_gradients ? (c * kTaps + kTaps - 1 - tap) * outputs + o
                                           : (o * kTaps + tap) * inputs + c);
        const int64_t stride = for_gradients ? 1 : kTaps * inputs;
        for (int64_t i = 0; i < kTileFloats; ++i) target[2 * i] = source[i * stride];
      }
    }
  }
}

TileShapes Convolution::MakeTileShapes() const {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileRows, kTileBytes);
  if (shape_.outputs == kTileFloats) {
    // The short steps' own registers.
    const int taps = shape_.inputs == kFrames ? 3 : 1;
    const int numbers = taps * static_cast<int>(shape_.inputs);
    shapes.Set(6, kTileRows, 2 * numbers);
    shapes.Set(7, numbers / 2, kTileBytes);
  }
  return shapes;
}

AMX void Convolution::SumTo16Outputs(const uint16_t* inputs, float* sums) const {
  const int64_t stride = 2 * shape_.inputs, next = kTileRows * shape_.inputs;
  const uint16_t* weights = weights_.get();
  ZeroSums();
  for (const Step& step : steps_) {
    const uint16_t* first = inputs + step.offset;
    if (step.is_short) {
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
    weights += kBfloatsOfTile;
  }
  StoreSums(sums);
}

AMX void Convolution::SumTo32Outputs(const uint16_t* inputs, float* sums) const {
  const int64_t stride = 2 * shape_.inputs, next = kTileRows * shape_.inputs;
  const uint16_t* weights = weights_.get();
  ZeroSums();
  for (const Step& step : steps_) {
    // No register is left for tiles of another shape: those of short steps end with weights of 0.
    // So numbers that are not finite spread one column further.
    _tile_loadd(6, weights, kTileBytes);
    _tile_loadd(7, weights + kBfloatsOfTile, kTileBytes);
    _tile_loadd(4, inputs + step.offset, stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, inputs + step.offset + next, stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    weights += 2 * kBfloatsOfTile;
  }
  StoreSums(sums);
}

// Writes a tile of sums: of 16 positions and a group of 16 outputs.
AMX void Convolution::Finish(const float* sums, int64_t position, int64_t group,
                             const Outputs& outputs) const {
  const __m512 bias = _mm512_loadu_ps(bias_.data() + group * kTileFloats);
  for (int64_t i = 0; i < kTileRows; ++i) {
    const int64_t pixel = pixels_[static_cast<size_t>(position + i)];
    if (pixel < 0) continue;
    const int64_t at = pixel * shape_.outputs + group * kTileFloats;
    __m512 numbers = _mm512_add_ps(_mm512_load_ps(sums + i * kTileFloats), bias);
    if (outputs.gate) {
      const __m256i gate = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(outputs.gate + at));
      numbers = _mm512_maskz_mov_ps(_mm256_cmpgt_epi16_mask(gate, _mm256_setzero_si256()), numbers);
    }
    if (outputs.added) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(outputs.added + at));
      const __m512i added = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
      numbers = _mm512_add_ps(numbers, _mm512_castsi512_ps(added));
    }
    const __m256bh rounded = _mm512_cvtneps_pbh(numbers);
    std::memcpy(outputs.numbers + at, &rounded, sizeof rounded);
  }
}

AMX void Convolution::Run(const uint16_t* inputs, bool relu, const Outputs& outputs) {
  picture_.Fill(inputs, relu);
  const TileScope tiles(MakeTileShapes());
  alignas(64) float sums[4 * kFloatsOfTile];
  for (int64_t position = 0; position < picture_.size(); position += positions_at_once_) {
    const uint16_t* first = picture_.data() + position * shape_.inputs;
    if (shape_.outputs == kTileFloats) {
      SumTo16Outputs(first, sums);
    } else {
      SumTo32Outputs(first, sums);
    }
    const int64_t groups = shape_.outputs / kTileFloats;
    for (int64_t tile = 0; tile < 4; ++tile) {
      Finish(sums + tile * kFloatsOfTile, position + tile / groups * kTileRows, tile % groups,
             outputs);
    }
  }
}

// The gradient of a filter's number is a product of two rows: inputs, and gradients of outputs, at
// all positions. Sums are tiles [inputs, outputs]. With 4 inputs, 3 neighbours are together in one
// tile.
FilterGradient::FilterGradient(const ConvolutionShape& shape)
    : shape_(shape),
      picture_(shape.height, shape.width, shape.inputs, 3 * kTileBfloats),
      positions_(RoundUp(picture_.size(), kTileBfloats)),
      // Not a power of two: rows would share few lines of the cache.
      stride_(RoundUp(positions_ + 2 * picture_.pitch() + 2, kTileBfloats) + kTileBfloats),
      transposed_(MakeZeros(std::max(kFilterSide * kFrames, shape.inputs) * stride_)),
      gradients_(MakeZeros(positions_ * shape.outputs)),
      sums_(static_cast<size_t>((kTaps + 1) * 4 * kFloatsOfTile)),
      bias_(static_cast<size_t>(shape.outputs)) {}

void FilterGradient::TransposeInputs() {
  const int64_t size = stride_ - kTileBfloats;
  const uint16_t* source = picture_.data();
  for (int64_t position = 0; position < size; position += kTileBfloats) {
    if (shape_.inputs == kFrames) {
      // At position 0, earlier ones are behind the row above, where nobody reads.
      Transpose4(source + position * kFrames, transposed_.get() + position, stride_);
    } else {
      for (int64_t c = 0; c < shape_.inputs; c += kTileFloats) {
        Transpose16(source + position * shape_.inputs + c, shape_.inputs,
                    transposed_.get() + c * stride_ + position, stride_);
      }
    }
  }
}

AMX void FilterGradient::PairGradients(const uint16_t* gradients) {
  alignas(64) static const std::array<uint16_t, kTileBfloats> alternating = [] {
    std::array<uint16_t, kTileBfloats> order;
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<uint16_t>(i / 2 + kTileFloats * (i % 2));
    }
    return order;
  }();
  const __m512i order = _mm512_load_si512(alternating.data());
  const __m512i bits_of_ones = _mm512_set1_epi16(0x3f80);
  const uint16_t zeros[kTileFloats] = {};
  __m512bh ones;
  std::memcpy(&ones, &bits_of_ones, sizeof ones);
  const int64_t outputs = shape_.outputs;
  for (int64_t o = 0; o < outputs; o += kTileFloats) {
    __m512 sum = _mm512_loadu_ps(bias_.data() + o);
    for (int64_t row = 0; row < shape_.height; ++row) {
      const uint16_t* source = gradients + row * shape_.width * outputs + o;
      uint16_t* target = gradients_.get() + row * picture_.pitch() * outputs + 2 * o;
      for (int64_t column = 0; column < shape_.width; column += 2) {
        const uint16_t* first = source + column * outputs;
        __m512i two;
        LoadTwo(first, column + 1 < shape_.width ? first + outputs : zeros, two);
        two = _mm512_permutexvar_epi16(order, two);
        _mm512_storeu_si512(target + column * outputs, two);
        __m512bh pairs;
        std::memcpy(&pairs, &two, sizeof pairs);
        sum = _mm512_dpbf16_ps(sum, pairs, ones);
      }
    }
    _mm512_storeu_ps(bias_.data() + o, sum);
  }
}

// Three tiles of sums: of a filter's three neighbouring inputs, or with 4 inputs of its three rows.
AMX void FilterGradient::AddTo16Outputs() {
  const bool is_frames = shape_.inputs == kFrames;
  const int64_t stride = 2 * stride_, pitch = picture_.pitch();
  for (int64_t pass = 0; pass < (is_frames ? 1 : kFilterSide); ++pass) {
    const uint16_t* inputs = transposed_.get() + pass * pitch;
    const int64_t next = is_frames ? pitch : 1;
    float* sums = sums_.data() + pass * kFilterSide * kFloatsOfTile;
    _tile_loadd(0, sums, kTileBytes);
    _tile_loadd(1, sums + kFloatsOfTile, kTileBytes);
    _tile_loadd(2, sums + 2 * kFloatsOfTile, kTileBytes);
    for (int64_t position = 0; position < positions_; position += kTileBfloats) {
      _tile_loadd(7, gradients_.get() + position * kTileFloats, kTileBytes);
      _tile_loadd(4, inputs + position, stride);
      _tile_dpbf16ps(0, 4, 7);
      _tile_loadd(5, inputs + position + next, stride);
      _tile_dpbf16ps(1, 5, 7);
      _tile_loadd(6, inputs + position + 2 * next, stride);
      _tile_dpbf16ps(2, 6, 7);
    }
    _tile_stored(0, sums, kTileBytes);
    _tile_stored(1, sums + kFloatsOfTile, kTileBytes);
    _tile_stored(2, sums + 2 * kFloatsOfTile, kTileBytes);
  }
}

// Four tiles of sums: two groups of outputs by two of inputs, or by two taps with 16 inputs. With
// 16 inputs the last pair has only one tap; the sums of its second half are not read.
AMX void FilterGradient::AddTo32Outputs() {
  const bool is_wide = shape_.inputs > kTileFloats;
  const int64_t stride = 2 * stride_, pitch = picture_.pitch();
  const auto at = [&](int64_t tap) {
    tap = std::min(tap, kTaps - 1);
    return transposed_.get() + tap / kFilterSide * pitch + tap % kFilterSide;
  };
  for (int64_t tap = 0; tap < kTaps; tap += is_wide ? 1 : 2) {
    const uint16_t* first = at(tap);
    const uint16_t* second = is_wide ? first + kTileFloats * stride_ : at(tap + 1);
    float* sums = sums_.data() + tap * (is_wide ? 4 : 2) * kFloatsOfTile;
    _tile_loadd(0, sums, kTileBytes);
    _tile_loadd(1, sums + kFloatsOfTile, kTileBytes);
    _tile_loadd(2, sums + 2 * kFloatsOfTile, kTileBytes);
    _tile_loadd(3, sums + 3 * kFloatsOfTile, kTileBytes);
    for (int64_t position = 0; position < positions_; position += kTileBfloats) {
      const uint16_t* gradients = gradients_.get() + position * 2 * kTileFloats;
      _tile_loadd(6, gradients, 2 * kTileBytes);
      _tile_loadd(7, gradients + kTileBfloats, 2 * kTileBytes);
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

AMX void FilterGradient::Add(const uint16_t* inputs, bool relu, const uint16_t* gradients) {
  picture_.Fill(inputs, relu);
  TransposeInputs();
  PairGradients(gradients);
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileRows, kTileBytes);
  if (shape_.inputs == kFrames) {
    for (const int tile : {0, 1, 2, 4, 5, 6}) {
      shapes.Set(tile, static_cast<int>(kFilterSide * kFrames), kTileBytes);
    }
  }
  const TileScope tiles(shapes);
  if (shape_.outputs == kTileFloats) {
    AddTo16Outputs();
  } else {
    AddTo32Outputs();
  }
}

void FilterGradient::Write(float* weight, float* bias) const {
  std::copy(bias_.begin(), bias_.end(), bias);
  const int64_t groups = shape_.outputs / kTileFloats;
  for (int64_t o = 0; o < shape_.outputs; ++o) {
    for (int64_t tap = 0; tap < kTaps; ++tap) {
      for (int64_t c = 0; c < shape_.inputs; ++c) {
        // Tiles lie in the order of taps, groups of inputs and groups of outputs.
        int64_t tile = tap, row = c;
        if (shape_.inputs == kFrames) {
          tile = tap / kFilterSide;
          row = tap % kFilterSide * kFrames + c;
        } else if (shape_.inputs > kTileFloats) {
          tile = tap * (shape_.inputs / kTileFloats) + c / kTileFloats;
          row = c % kTileFloats;
        }
        tile = tile * groups + o / kTileFloats;
        weight[(o * kTaps + tap) * shape_.inputs + c] =
            sums_[static_cast<size_t>(tile * kFloatsOfTile + row * kTileFloats + o % kTileFloats)];
      }
    }
  }
}

}  // namespace torchbeast

#endif
