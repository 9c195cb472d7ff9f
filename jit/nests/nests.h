// The recipes of ops that are loop nests of their own.
#pragma once

#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Columns of a parallel part of a scatter.
inline constexpr std::int64_t kScatterColumns = 256;

extern const NestRecipe kAttentionPartsRecipe;
extern const NestRecipe kAttentionRecipe;
extern const NestRecipe kConvRecipe;
extern const NestRecipe kConvTransposeRecipe;
extern const NestRecipe kDequantisedMatmulRecipe;
extern const NestRecipe kGroupedMatmulRecipe;
extern const NestRecipe kInt8ConvRecipe;
extern const NestRecipe kInt8MatmulRecipe;
extern const NestRecipe kJoinAttentionRecipe;
extern const NestRecipe kMatmulRecipe;
extern const NestRecipe kMergeRunsRecipe;
extern const NestRecipe kOrderedScatterRecipe;
extern const NestRecipe kPackedGroupedMatmulRecipe;
extern const NestRecipe kPackedBf16ConvRecipe;
extern const NestRecipe kPackedInt8ConvRecipe;
extern const NestRecipe kPackedBf16MatmulRecipe;
extern const NestRecipe kFixedBitsMatmulRecipe;
extern const NestRecipe kPackedBitsMatmulRecipe;
extern const NestRecipe kPackedInt8MatmulRecipe;
extern const NestRecipe kPackedMatmulRecipe;
extern const NestRecipe kPackedSplitMatmulRecipe;
extern const NestRecipe kPoolRecipe;
extern const NestRecipe kScanRecipe;
extern const NestRecipe kScatterRecipe;
extern const NestRecipe kSliceScatterRecipe;
extern const NestRecipe kSortRecipe;
extern const NestRecipe kBytePanelsRecipe;
extern const NestRecipe kSplitBytePairsRecipe;

}  // namespace heddle::jit
