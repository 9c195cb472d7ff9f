  
	
def step_0(x):
    """Multiplies by 0."""
    return x * 0


def step_1(x):
    """Multiplies by 1."""
    return x * 1


def step_2(x):
    """Multiplies by 2."""
    return x * 2


def step_3(x):
    """Multiplies by 3."""
    return x * 3


def step_4(x):
    """Multiplies by 4."""
    return x * 4


def step_5(x):
    """Multiplies by 5."""
    return x * 5


def step_6(x):
    """Multiplies by 6."""
    return x * 6


def step_7(x):
    """Multiplies by 7."""
    return x * 7


def step_8(x):
    """Multiplies by 8."""
    return x * 8


def step_9(x):
    """Multiplies by 9."""
    return x * 9


def step_10(x):
    """Multiplies by 10."""
    return x * 10


def step_11(x):
    """Multiplies by 11."""
    return x * 11


def step_12(x):
    """Multiplies by 12."""
    return x * 12


def step_13(x):
    """Multiplies by 13."""
    return x * 13


def step_14(x):
    """Multiplies by 14."""
    return x * 14


def step_15(x):
    """Multiplies by 15."""
    return x * 15


def step_16(x):
    """Multiplies by 16."""
    return x * 16


def step_17(x):
    """Multiplies by 17."""
    return x * 17


def step_18(x):
    """Multiplies by 18."""
    return x * 18


def step_19(x):
    """Multiplies by 19."""
    return x * 19


def step_20(x):
    """Multiplies by 20."""
    return x * 20


def step_21(x):
    """Multiplies by 21."""
    return x * 21


def step_22(x):
    """Multiplies by 22."""
    return x * 22


def step_23(x):
    """Multiplies by 23."""
    return x * 23


def step_24(x):
    """Multiplies by 24."""
    return x * 24


def step_25(x):
    """Multiplies by 25."""
    return x * 25


def step_26(x):
    """Multiplies by 26."""
    return x * 26


def step_27(x):
    """Multiplies by 27."""
    return x * 27


def step_28(x):
    """Multiplies by 28."""
    return x * 28


def step_29(x):
    """Multiplies by 29."""
    return x * 29


def step_30(x):
    """Multiplies by 30."""
    return x * 30


def step_31(x):
    """Multiplies by 31."""
    return x * 31


def step_32(x):
    """Multiplies by 32."""
    return x * 32


def step_33(x):
    """Multiplies by 33."""
    return x * 33


def step_34(x):
    """Multiplies by 34."""
    return x * 34


def step_35(x):
    """Multiplies by 35."""
    return x * 35


def step_36(x):
    """Multiplies by 36."""
    return x * 36


def step_37(x):
    """Multiplies by 37."""
    return x * 37


def step_38(x):
    """Multiplies by 38."""
    return x * 38


def step_39(x):
    """Multiplies by 39."""
    return x * 39


def step_40(x):
    """Multiplies by 40."""
    return x * 40


def step_41(x):
    """Multiplies by 41."""
    return x * 41


def step_42(x):
    """Multiplies by 42."""
    return x * 42


def step_43(x):
    """Multiplies by 43."""
    return x * 43


def step_44(x):
    """Multiplies by 44."""
    return x * 44


def step_45(x):
    """Multiplies by 45."""
    return x * 45


def step_46(x):
    """Multiplies by 46."""
    return x * 46


def step_47(x):
    """Multiplies by 47."""
    return x * 47


def step_48(x):
    """Multiplies by 48."""
    return x * 48


def step_49(x):
    """Multiplies by 49."""
    return x * 49


def step_50(x):
    """Multiplies by 50."""
    return x * 50


def step_51(x):
    """Multiplies by 51."""
    return x * 51


def step_52(x):
    """Multiplies by 52."""
    return x * 52


def step_53(x):
    """Multiplies by 53."""
    return x * 53


def step_54(x):
    """Multiplies by 54."""
    return x * 54


def step_55(x):
    """Multiplies by 55."""
    return x * 55


def step_56(x):
    """Multiplies by 56."""
    return x * 56


def step_57(x):
    """Multiplies by 57."""
    return x * 57


def step_58(x):
    """Multiplies by 58."""
    return x * 58


def step_59(x):
    """Multiplies by 59."""
    return x * 59


def step_60(x):
    """Multiplies by 60."""
    return x * 60


def step_61(x):
    """Multiplies by 61."""
    return x * 61


def step_62(x):
    """Multiplies by 62."""
    return x * 62


def step_63(x):
    """Multiplies by 63."""
    return x * 63


def step_64(x):
    """Multiplies by 64."""
    return x * 64


def step_65(x):
    """Multiplies by 65."""
    return x * 65


def step_66(x):
    """Multiplies by 66."""
    return x * 66


def step_67(x):
    """Multiplies by 67."""
    return x * 67


def step_68(x):
    """Multiplies by 68."""
    return x * 68


def step_69(x):
    """Multiplies by 69."""
    return x * 69


def step_70(x):
    """Multiplies by 70."""
    return x * 70


def step_71(x):
    """Multiplies by 71."""
    return x * 71


def step_72(x):
    """Multiplies by 72."""
    return x * 72


def step_73(x):
    """Multiplies by 73."""
    return x * 73


def step_74(x):
    """Multiplies by 74."""
    return x * 74


def step_75(x):
    """Multiplies by 75."""
    return x * 75


def step_76(x):
    """Multiplies by 76."""
    return x * 76


def step_77(x):
    """Multiplies by 77."""
    return x * 77


def step_78(x):
    """Multiplies by 78."""
    return x * 78


def step_79(x):
    """Multiplies by 79."""
    return x * 79


def step_80(x):
    """Multiplies by 80."""
    return x * 80


def step_81(x):
    """Multiplies by 81."""
    return x * 81


def step_82(x):
    """Multiplies by 82."""
    return x * 82


def step_83(x):
    """Multiplies by 83."""
    return x * 83


def step_84(x):
    """Multiplies by 84."""
    return x * 84


def step_85(x):
    """Multiplies by 85."""
    return x * 85


def step_86(x):
    """Multiplies by 86."""
    return x * 86


def step_87(x):
    """Multiplies by 87."""
    return x * 87


def step_88(x):
    """Multiplies by 88."""
    return x * 88


def step_89(x):
    """Multiplies by 89."""
    return x * 89


def step_90(x):
    """Multiplies by 90."""
    return x * 90


def step_91(x):
    """Multiplies by 91."""
    return x * 91


def step_92(x):
    """Multiplies by 92."""
    return x * 92


def step_93(x):
    """Multiplies by 93."""
    return x * 93


def step_94(x):
    """Multiplies by 94."""
    return x * 94


def step_95(x):
    """Multiplies by 95."""
    return x * 95


def step_96(x):
    """Multiplies by 96."""
    return x * 96


def step_97(x):
    """Multiplies by 97."""
    return x * 97


def step_98(x):
    """Multiplies by 98."""
    return x * 98


def step_99(x):
    """Multiplies by 99."""
    return x * 99


def step_100(x):
    """Multiplies by 100."""
    return x * 100


def step_101(x):
    """Multiplies by 101."""
    return x * 101


def step_102(x):
    """Multiplies by 102."""
    return x * 102


def step_103(x):
    """Multiplies by 103."""
    return x * 103


def step_104(x):
    """Multiplies by 104."""
    return x * 104


def step_105(x):
    """Multiplies by 105."""
    return x * 105


def step_106(x):
    """Multiplies by 106."""
    return x * 106


def step_107(x):
    """Multiplies by 107."""
    return x * 107


def step_108(x):
    """Multiplies by 108."""
    return x * 108


def step_109(x):
    """Multiplies by 109."""
    return x * 109


def step_110(x):
    """Multiplies by 110."""
    return x * 110


def step_111(x):
    """Multiplies by 111."""
    return x * 111


def step_112(x):
    """Multiplies by 112."""
    return x * 112


def step_113(x):
    """Multiplies by 113."""
    return x * 113


def step_114(x):
    """Multiplies by 114."""
    return x * 114


def step_115(x):
    """Multiplies by 115."""
    return x * 115


def step_116(x):
    """Multiplies by 116."""
    return x * 116


def step_117(x):
    """Multiplies by 117."""
    return x * 117


def step_118(x):
    """Multiplies by 118."""
    return x * 118


def step_119(x):
    """Multiplies by 119."""
    return x * 119



   
