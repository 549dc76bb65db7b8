"""The operations that TensorFlow Serving has beside those of TensorFlow."""

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

# Those of tensorflow-text's target `ops_lib`, which TensorFlow Serving links
# (tensorflow_serving/model_servers/BUILD), in version 2.12: tensorflow_text/BUILD, and what its
# sources register, at the commit f8dee2d8 of the branch 2.12.
OPS_LIB = """
    CaseFoldUTF8 ConstrainedSequence FastBertNormalize FastWordpieceTokenizeWithOffsets
    FindSourceOffsets MaxSpanningTree NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize
    RegexSplitWithOffsets RougeL SentenceFragments SentenceFragmentsV2 SentencepieceDetokenizeOp
    SentencepieceIdToStringOp SentencepieceOp SentencepieceStringToIdOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp SplitMergeTokenizeWithOffsets
    TFText>BoiseTagsToOffsets TFText>ByteSplitByOffsets TFText>ByteSplitWithOffsets
    TFText>FastSentencepieceDetokenize TFText>FastSentencepieceTokenize
    TFText>FastWordpieceDetokenize TFText>NgramsStringJoin TFText>OffsetsToBoiseTags
    TFText>PhraseDetokenize TFText>WhitespaceTokenizeWithOffsetsV2 TokenizerFromLogits
    UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets
""".split()


def operations(graph):
    """The types of all operations of a `GraphDef`."""
    functions = (function.node_def for function in graph.library.function)
    return {node.op for nodes in (graph.node, *functions) for node in nodes}


def saved_operations(folder):
    """The types of all operations of a SavedModel."""
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    return set().union(*(operations(graph.graph_def) for graph in model.meta_graphs))


def assert_served(found):
    """Each operation is one of TensorFlow's, or of `OPS_LIB`; returns the latter."""
    core = {name for name in found if name.startswith("Xla") or hasattr(tf.raw_ops, name)}
    of_texts = found - core
    assert of_texts <= {*OPS_LIB}
    return of_texts
