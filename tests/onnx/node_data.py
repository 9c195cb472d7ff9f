"""Where Debian's package libonnx-testdata puts the node cases of the ONNX backend test, and what is known of them."""

FOLDER = "/usr/share/libonnx-testdata/data/node"
#: Data sets that are not what the cases say: bf16 that is cut off in place of rounded, and a "like" of other sizes than the model's.
NOT_AS_SAID = {"test_cast_FLOAT_to_BFLOAT16", "test_castlike_BFLOAT16_to_FLOAT", "test_castlike_BFLOAT16_to_FLOAT_expanded",
               "test_castlike_FLOAT_to_BFLOAT16", "test_castlike_FLOAT_to_BFLOAT16_expanded"}
