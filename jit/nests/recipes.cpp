#include "jit/nests/recipes.h"

#include <vector>

#include "jit/nests/nests.h"

namespace heddle::jit {

std::span<const NestRecipe> all_recipes() {
  static const std::vector<NestRecipe> recipes{kAttentionRecipe,
                                               kAttentionPartsRecipe,
                                               kConvRecipe,
                                               kConvTransposeRecipe,
                                               kDequantisedMatmulRecipe,
                                               kGroupedMatmulRecipe,
                                               kInt8ConvRecipe,
                                               kInt8MatmulRecipe,
                                               kJoinAttentionRecipe,
                                               kMatmulRecipe,
                                               kPackedGroupedMatmulRecipe,
                                               kPackedInt8ConvRecipe,
                                               kPackedBf16ConvRecipe,
                                               kPackedBf16MatmulRecipe,
                                               kFixedBitsMatmulRecipe,
                                               kPackedBitsMatmulRecipe,
                                               kPackedInt8MatmulRecipe,
                                               kPackedMatmulRecipe,
                                               kPackedSplitMatmulRecipe,
                                               kMergeRunsRecipe,
                                               kOrderedScatterRecipe,
                                               kPoolRecipe,
                                               kScanRecipe,
                                               kScatterRecipe,
                                               kSliceScatterRecipe,
                                               kSortRecipe,
                                               kSplitBytePairsRecipe,
                                               kBytePanelsRecipe};
  return recipes;
}

const NestRecipe* find_recipe(std::string_view name) {
  for (const NestRecipe& recipe : all_recipes()) {
    if (recipe.name == name) return &recipe;
  }
  return nullptr;
}

}  // namespace heddle::jit
