// The tables of ops that the importer knows, one a family.
#pragma once

#include <span>
#include <string_view>

#include "engine/onnx/node.h"

namespace heddle::onnx {

std::span<const Converter>
pointwise_converters();  ///< one element from one element of each operand
std::span<const Converter> activation_converters();
std::span<const Converter> reduce_converters();  ///< reductions, scans and selections along an axis
std::span<const Converter> shape_converters();   ///< views, sizes and their arithmetic
std::span<const Converter> slice_converters();
std::span<const Converter> creation_converters();  ///< tensors made from sizes and numbers
std::span<const Converter> index_converters();     ///< gather, scatter and what is made of them
std::span<const Converter> select_converters();    ///< as many elements as the data say
std::span<const Converter> sample_converters();    ///< elements between those of a tensor
std::span<const Converter> window_converters();    ///< convolution and pooling
std::span<const Converter> norm_converters();      ///< normalisations and softmax
std::span<const Converter> matrix_converters();    ///< products of matrices
std::span<const Converter> attention_converters();
std::span<const Converter> quantize_converters();
std::span<const Converter> resize_converters();
std::span<const Converter> recurrent_converters();
std::span<const Converter> loss_converters();
std::span<const Converter> random_converters();  ///< other numbers in each run
std::span<const Converter> tree_converters();    ///< of ai.onnx.ml: ensembles of trees
std::span<const Converter> svm_converters();     ///< and its support vector machines
std::span<const Converter>
classical_converters();  ///< and its other models, and what prepares features
std::span<const Converter> signal_converters();    ///< Fourier transforms
std::span<const Converter> region_converters();    ///< pooled regions of interest
std::span<const Converter> unpool_converters();    ///< from windows back to what they were cut from
std::span<const Converter> deform_converters();    ///< convolution where offsets say
std::span<const Converter> sequence_converters();  ///< lists of tensors, as long as tracing says
std::span<const Converter> text_converters();      ///< counts of n-grams
std::span<const Converter> contrib_converters();   ///< of the domain com.microsoft
std::span<const Converter>
contrib_fused_converters();  ///< several ops in one, as optimisers write them
std::span<const Converter> contrib_qlinear_converters();
std::span<const Converter> contrib_expert_converters();
std::span<const Converter> contrib_attention_converters();
std::span<const Converter> contrib_quantize_converters();
std::span<const Converter> contrib_recurrent_converters();

/// The row for `name` of `domain`; null if there is none.
const Converter* find_converter(std::string_view domain, std::string_view name);

// Shape arithmetic on known integers, used by several families.
Outputs convert_binary(const Node& node);
/// Of square matrices.
Outputs convert_inverse(const Node& node);
/// Gemm, what others do something to.
Outputs convert_gemm(const Node& node);

}  // namespace heddle::onnx
