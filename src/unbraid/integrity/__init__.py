"""Proof that a deployment loses nothing: three layers that must tell the same story.

    raw text and ids of the engine  --table-->  what a client should see
                                                  |            |
                                              one-shot      stream, joined

    check.py     an endpoint, case by case              cases.py    what it is asked
    compare.py   two endpoints, byte for byte           client.py   HTTP
    audit.py     captures, read afterwards              layers.py   a reply as the client sees it
    doctor.py    an installation, before it serves      align.py    the first difference, located in the raw layer
                                                        causes.py   what probably went wrong there

Whatever says what *should* have arrived is the machine (`unbraid.Parser`) and the protocol layer (`unbraid.openai`) that
everything else uses; nothing is derived here a second time. Asking endpoints needs the extra `check`.
"""
