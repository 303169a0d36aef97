package wire

// The message types. A number is never used again; removed ones stay listed in
// postern.cddl. The first message of a channel is one of 1 to 15.
const (
	TypeStart         Type = 1
	TypeAttach        Type = 2
	TypeControl       Type = 3
	TypeFiles         Type = 4 // reserved
	TypeForward       Type = 5 // reserved
	TypeForwardListen Type = 6 // reserved

	TypeInput     Type = 16
	TypeInputEnd  Type = 17
	TypeResize    Type = 18
	TypeSignal    Type = 19
	TypeTerminate Type = 20
	TypeAck       Type = 21

	TypeStarted    Type = 32
	TypeOutput     Type = 33
	TypeGap        Type = 34
	TypeExit       Type = 35
	TypeInputAck   Type = 36
	TypeDone       Type = 37
	TypeSuperseded Type = 38
	TypeList       Type = 39

	TypePing    Type = 48
	TypeRefused Type = 49

	TypeHello   Type = 64
	TypeWelcome Type = 65

	TypeHopHello   Type = 80
	TypeHopWelcome Type = 81
	TypeHopPing    Type = 82
	TypeHopPong    Type = 83
	TypeHopGoaway  Type = 84
	TypeHopNotice  Type = 85
	TypeHopNextKey Type = 86

	TypeDial      Type = 96
	TypeIncoming  Type = 97
	TypeDialReply Type = 98

	TypeReply         Type = 112
	TypeListExecutors Type = 113
	TypeExecutorItem  Type = 114
	TypeAddToken      Type = 115
	TypeRemoveToken   Type = 116
	TypeListTokens    Type = 117
	TypeTokenItem     Type = 118
	TypeFollow        Type = 119
	TypeRetire        Type = 120
)

func newMessage(t Type) Message {
	switch t {
	case TypeStart:
		return new(Start)
	case TypeAttach:
		return new(Attach)
	case TypeControl:
		return new(Control)
	case TypeInput:
		return new(Input)
	case TypeInputEnd:
		return new(InputEnd)
	case TypeResize:
		return new(Resize)
	case TypeSignal:
		return new(SignalMessage)
	case TypeTerminate:
		return new(Terminate)
	case TypeAck:
		return new(Ack)
	case TypeStarted:
		return new(Started)
	case TypeOutput:
		return new(Output)
	case TypeGap:
		return new(GapMessage)
	case TypeExit:
		return new(Exit)
	case TypeInputAck:
		return new(InputAck)
	case TypeDone:
		return new(Done)
	case TypeSuperseded:
		return new(Superseded)
	case TypeList:
		return new(List)
	case TypePing:
		return new(Ping)
	case TypeRefused:
		return new(Refused)
	case TypeHello:
		return new(Hello)
	case TypeWelcome:
		return new(Welcome)
	case TypeHopHello:
		return new(HopHello)
	case TypeHopWelcome:
		return new(HopWelcome)
	case TypeHopPing:
		return new(HopPing)
	case TypeHopPong:
		return new(HopPong)
	case TypeHopGoaway:
		return new(HopGoaway)
	case TypeHopNotice:
		return new(HopNotice)
	case TypeHopNextKey:
		return new(HopNextKey)
	case TypeDial:
		return new(Dial)
	case TypeIncoming:
		return new(Incoming)
	case TypeDialReply:
		return new(DialReply)
	case TypeReply:
		return new(Reply)
	case TypeListExecutors:
		return new(ListExecutors)
	case TypeExecutorItem:
		return new(ExecutorItem)
	case TypeAddToken:
		return new(AddToken)
	case TypeRemoveToken:
		return new(RemoveToken)
	case TypeListTokens:
		return new(ListTokens)
	case TypeTokenItem:
		return new(TokenItem)
	case TypeFollow:
		return new(Follow)
	case TypeRetire:
		return new(Retire)
	}
	return nil
}
